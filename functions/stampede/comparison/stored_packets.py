"""The packets of a store beside its proofs: each record's digest, computed again from its bytes."""

from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import islice

import numpy as np

from stampede.alerts.framing import Framing
from stampede.config.settings import Settings
from stampede.errors import Damaged, NotFound, SchemaRegistryDown, SetupError, StampedeError
from stampede.events.kafka.schema_registry import schemas_of
from stampede.handlers.replay.messages import Replayed, Unsendable
from stampede.handlers.replay.night import Night
from stampede.proofs.checks import ProofFault
from stampede.proofs.leaves import ID_BYTES, WIDTH, ids_of, no_entries, united, without
from stampede.proofs.night_proof import latest_of, nights_of
from stampede.store.objects.object_store import Objects

BATCH = 500
"""Alerts that are compared at once."""


class StoredPackets:
    """Compares the messages of a store, put together from packets and images, with its proofs.

    An alert that a proof has must have the record that the proof says. `ProofChecker` finds those
    that only one of them has. Messages that are stored twice under one position come once.

    Parameters
    ----------
    progress
        Called with a line of text now and then.

    Attributes
    ----------
    compared
        How many alerts were read and are in a proof.
    gone
        How many are not whole any more: retention has deleted images of them.
    """

    def __init__(
        self, objects: Objects, settings: Settings, progress: Callable[[str], None]
    ) -> None:
        self._framing = Framing(settings.max_alert_bytes, schemas_of(settings))
        self._objects, self._settings, self._progress = objects, settings, progress
        self.compared = self.gone = 0

    def faults(self) -> Iterator[ProofFault]:
        """Each alert that differs, or cannot be read; the earliest night of each survey first.

        Raises `StoreDown`, `SchemaRegistryDown`.
        """
        for survey, night in nights_of(self._objects):
            for fault in self._of_night(survey, night):
                yield ProofFault(survey, night, fault)

    def _of_night(self, survey: str, night: int) -> Iterator[str]:
        try:
            proofs = latest_of(self._objects, survey, night)
            proven = united(no_entries(), *(each.leaves(self._objects).read() for each in proofs))
        except (Damaged, NotFound) as error:
            yield f"its packets are not compared: {error.message}"
            return
        try:
            stored = Night(self._settings, night, survey)
        except SetupError:  # there are none: `ProofChecker` says whether there should be
            return
        alerts, done = iter(stored), 0
        while some := list(islice(alerts, BATCH)):
            yield from self._compared(some, proven)
            done += len(some)
            self._progress(f"{survey} {night}: {done:,} of {len(stored):,} alerts")

    def _compared(self, some: list[Replayed | Unsendable], proven: np.ndarray) -> Iterator[str]:
        entries = []
        for each in some:
            if isinstance(each, Unsendable):
                self.gone += each.gone
                if not each.gone:
                    name = "a pack" if each.alert_id is None else f"alert {each.alert_id}"
                    yield f"{name} cannot be read: {each.why}"
                continue
            try:
                record = self._framing.take(each.message).record
            except SchemaRegistryDown:
                raise
            except StampedeError as error:
                yield f"alert {each.alert_id} cannot be read: {error.message}"
                continue
            entries.append(each.alert_id.to_bytes(ID_BYTES, "big") + sha256(record).digest())
        read = np.frombuffer(b"".join(entries), np.uint8).reshape(-1, WIDTH)
        known = read[np.isin(ids_of(read), ids_of(proven))]
        self.compared += len(known)
        for alert_id in np.unique(ids_of(without(known, proven))).tolist():
            yield f"alert {alert_id} has a packet with another record than in the proof"
