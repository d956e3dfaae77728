"""Makes a bucket with objects of every kind, by the functions of this version themselves.

Limits of writers are lowered while `compact` runs: so a few rows are a run of several parts with
sections and files beside its checkpoint. No reader knows these limits.
"""

import asyncio
import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import datetime
from itertools import cycle, islice
from pathlib import Path
from unittest.mock import patch

from stampede.config.settings import Settings
from stampede.events.cloudevents.envelope import Envelope
from stampede.events.cloudevents.event import Event, Position
from stampede.events.workers.worker import Batch
from stampede.handlers import compact as handler
from stampede.handlers import cutouts, lightcurves
from stampede.handlers.compact import Compactor
from stampede.handlers.deadletters import DeadLetters
from stampede.handlers.merges import packets
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.scrub.handler import scrub_sites
from stampede.handlers.thumbnails.handler import Thumbnails
from stampede.store.compaction import packet_merge
from stampede.store.compaction.compact import Policy, Report, compact
from stampede.store.integrity import ledger
from stampede.store.objects import probes
from stampede.store.open import open_objects
from stampede.store.runs import writer
from stampede.store.tables import checkpoint_files
from stampede.store.tables.table import Table
from stampede_bench.ingestion.decode import views_of_one_buffer
from stampede_simulator.alert_bytes import SimulatedAlert
from tests.support.events import dead_letters
from tests.support.releases import sent
from tests.support.releases.clock import BEGIN, Clock, clocked

PROGRAMMES = "1,2"
FUNCTIONS = cutouts, lightcurves
ID = "c3RhbXBlZGUtMC4xLjAtaQ"  # as Kafka's ids of topics look
FILE = "an-archive"  # what `stampede ingest` calls a topic
BATCH = 2
LIMITS = {
    (writer, "GROUP_ROWS"): 8,
    (writer, "SMALL_GROUPS"): 2,
    (writer, "SECTION_GROUPS"): 2,
    (writer, "SMALL_FILTER"): 2,
    (checkpoint_files, "LARGE"): 2,
    (packet_merge, "UNPACKED_BYTES"): 30_000,
    (packets, "WINDOWS"): 1.0,
}
RUN_ROWS = {
    **{"cutouts": 60, "detections": 60, "thumbnails": 12, "packets": 12, "positions": 4},
    "moving": 2,
}
"""The setting `run_rows` for each table: each has runs that are cut into parts."""


def fill(folder: Path) -> Settings:
    """Fill a bucket in a folder, which is empty; return the settings that read it."""
    settings = Settings(store=f"file://{folder}", ztf_programids=PROGRAMMES, spool=folder.parent)
    with clocked() as clock:
        _Filling(settings, clock).run()
    return settings


@contextmanager
def _limits() -> Iterator[None]:
    with ExitStack() as stack:
        for (module, name), value in LIMITS.items():
            stack.enter_context(patch.object(module, name, value))
        stack.enter_context(patch.object(handler, "compact", _compact))
        yield


def _compact(table: Table, now: datetime, policy: Policy) -> Report:
    return compact(table, now, replace(policy, run_rows=RUN_ROWS[table.spec.name]))


class _Filling:
    """The history of a bucket."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self._settings = settings.model_copy(
            update={"fanout": 2, "reconcile_keys": 1, "orphan_days": 7}
        )
        self._clock, self._objects = clock, open_objects(settings)
        self._offset = 0

    def run(self) -> None:
        """From the first alert to what every function knows of itself."""
        alerts = sent.simulated()
        again = alerts["ztf", 61013][0].body
        self._store_night(alerts["ztf", 61012])
        self._resend(again, 1700, drawn=False)
        self._store_night(alerts["ztf", 61013])
        self._resend(again, 120)
        self._store(sent.mixed())
        self._store_night(alerts["lsst", 61007])
        self._store_night(alerts["lsst", 61012])
        self._store([sent.moved(alerts["lsst", 61012][0])])
        for _ in range(3):  # nights, then the month; then what was merged is deleted
            self._compact(days=3)
        self._store_night(alerts["ztf", 61016])
        self._compact(days=3)
        self._compact(minutes=10)  # nothing is due
        self._store_night(alerts["ztf", 61020])
        self._store_night(alerts["lsst", 61016])
        self._letters()
        self._rounds()

    def _store_night(self, alerts: Sequence[SimulatedAlert]) -> None:
        for begin in range(0, len(alerts), BATCH):
            self._store([alert.body for alert in alerts[begin : begin + BATCH]])

    def _store(self, messages: Sequence[bytes]) -> None:
        numbers = range(self._offset, self._offset + len(messages))
        self._offset += len(messages)
        places = [Position(f"alerts@{ID}", n % 2, n // 2) for n in numbers]
        envelopes = [
            Envelope(f"2026-11-01T04:05:06.{n:03}Z", f"key {n}", '{"trace": "a"}', "")
            for n in numbers
        ]
        batch = Batch(views_of_one_buffer(messages), places, envelopes=envelopes)
        self._store_batch(self._settings, batch)

    def _resend(self, message: bytes, times: int, drawn: bool = True) -> None:
        """Store a message many times, as if topics of many nights had it, with gaps.

        So other tables have many offsets; `packets` has few, since its packets are not kept.
        """
        draw, places, skipped = random.Random(times).randrange, [], []
        ends = {(night, partition): 0 for night in range(8) for partition in range(4)}
        for night, partition in islice(cycle(ends), times):
            skipped.append(draw(10**6))  # as control records of transactions
            offset = ends[night, partition] + skipped[-1]
            ends[night, partition] = offset + 1
            places.append(Position(f"night_{night}.{times}@{ID[:-1]}{night}", partition, offset))
        batch = Batch(views_of_one_buffer([message] * times), places, skipped=skipped)
        self._store_batch(self._settings.model_copy(update={"packet_days": 0}), batch, drawn)

    def _store_batch(self, settings: Settings, batch: Batch, drawn: bool = True) -> None:
        self._clock.advance(minutes=1)
        before = {info.key for info in self._objects.list("packs/")}
        for function in FUNCTIONS:
            stored = function.make_batch_storer(settings)(batch)
            assert stored.outcomes == [None] * len(batch.messages), stored.outcomes
        for info in [*self._objects.list("packs/")]:
            if drawn and info.key not in before:
                Thumbnails(settings).make(info.key)

    def _compact(self, **after: float) -> None:
        self._clock.advance(**after)
        with _limits():
            Compactor(self._settings).make_pass()

    def _letters(self) -> None:
        """Alerts that cannot be stored, from a file that was ingested, as a source reports them."""
        self._clock.advance(minutes=1)
        letters = [
            Event(
                {
                    **{"specversion": "1.0", "type": "dev.knative.kafka.event", "id": f"{table} 0"},
                    **{"source": f"/stampede#{FILE}", "subject": "partition:0#0"},
                    **{"knativeerrorcode": "400", "knativeerrordata": "it is no alert"},
                },
                b"no alert",
                f"/{table}",
            )
            for table in ("cutouts", "detections")
        ]
        outcomes = asyncio.run(DeadLetters(self._objects).store_batch(letters))
        assert outcomes == [None, None], outcomes
        dead_letters.accept(self._objects, f"cutouts/{FILE}/0/0", reason="it is no alert")
        ledger.expect(self._objects, FILE, 1)

    def _rounds(self) -> None:
        """Let `scrub` and `reconcile` begin a round, and a probe of notifications come."""
        self._clock.advance(minutes=10)
        scrub_sites(self._settings)
        Reconciler(self._settings).run()
        # The rest is for a Ceph alone: `reconcile` asks whether its notifications come.
        for key in (probes.ASKED, probes.SEEN):
            probes.write_moments(self._objects, key, BEGIN, self._clock.now)
        probes.receive(self._objects, probes.sent_probe(self._clock.now))
        self._objects.put(f"{probes.TIMED}{'0' * 32}/4-000", b"left")  # by a killed check
