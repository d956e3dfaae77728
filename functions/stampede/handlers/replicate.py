"""replicate: copies each stored object to the second site, and responses when it is there.

It holds the events of copies in progress and of a few that wait, and responses 429 to any more.
"""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Self

from stampede.config.settings import Settings
from stampede.errors import Overloaded
from stampede.events.cloudevents.event import Event
from stampede.events.cloudevents.s3_events import key_of
from stampede.store.objects.probes import is_probe
from stampede.store.open import open_objects, open_replica
from stampede.store.packs.retention import Retention
from stampede.store.replication.copy import Copied
from stampede.store.replication.replica import Replica
from stampede.telemetry import reconcile_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

EVENTS_PER_COPY = 4  # events held for each copy that may be in progress


class Replicate:
    """Takes the events of stored objects. Raises `SetupError` if there is no second site.

    An async context manager: closed on leaving.
    """

    def __init__(self, settings: Settings) -> None:
        self._replica = make_replica(settings)
        self._pool = ThreadPoolExecutor(settings.copies, "replicate")
        self._most_held = EVENTS_PER_COPY * settings.copies
        self._held = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    async def handle(self, event: Event) -> None:
        """Copy one object; return when the second site has it.

        Raises `NotAnEvent`, `Overloaded`, `StoreDown`, `Damaged`.
        """
        key = key_of(event)
        if is_probe(key):
            return
        if self._held >= self._most_held:
            raise Overloaded(f"{self._held} copies are in progress or wait: try again later")
        self._held += 1
        try:
            copied = await asyncio.get_running_loop().run_in_executor(
                self._pool, self._replica.copy, key
            )
        finally:
            self._held -= 1
        count(key, copied)

    def close(self) -> None:
        """Wait for the copies in progress and stop the threads; blocks."""
        self._pool.shutdown()
        self._replica.close()


def make_replica(settings: Settings) -> Replica:
    """The second site of the settings. Raises `SetupError` if there is none."""
    return Replica(
        open_objects(settings),
        open_replica(settings),
        settings.copies,
        Retention.of(settings).expired,
        settings.copy_bytes,
    )


def count(key: str, copied: Copied) -> None:
    """Count a copy in the metrics, unless the second site had the object already."""
    if copied.moved:
        reconcile_metrics.REPLICATED_OBJECTS.inc()
        reconcile_metrics.REPLICATED_BYTES.inc(copied.bytes)
        log.debug("replicated", key=key, bytes=copied.bytes)
