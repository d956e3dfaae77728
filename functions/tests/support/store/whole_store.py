"""A small store with objects of every kind, filled by the functions themselves."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from stampede.config.settings import Settings
from stampede.deadletters.dead_letter import write_letters
from stampede.events import ALERT_FUNCTIONS
from stampede.handlers.thumbnails.handler import Thumbnails
from stampede.store.compaction.compact import Policy, compact
from stampede.store.integrity import ledger
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects
from stampede.store.runs.schema import ALL_TABLES
from stampede.store.tables.table import Table
from stampede_simulator.simulator import Fields, Simulator
from tests.support.events.dead_letters import event
from tests.support.store.stored_packets import TOPIC, store

BATCH, MERGED, ALERTS = 8, 5, 60


class Filled(NamedTuple):
    """What the alerts of the store are of, and some of their ids."""

    settings: Settings
    objects: Objects
    alert_ids: list[int]
    object_ids: list[str]
    nights: list[str]


def fill_store(folder: Path, settings: Settings | None = None) -> Filled:
    """Fill a store: merged runs and new ones, packs of each kind, a dead letter.

    It is that of `settings`, which is empty, or one in the folder.
    """
    settings = settings or Settings(store=f"file://{folder}/store", spool=folder)
    objects = open_objects(settings)
    alerts = [
        alert for alert in Simulator(3, Fields(objects=4)).alerts(ALERTS) if alert.fault is None
    ]
    for number, begin in enumerate(range(0, len(alerts), BATCH)):
        store(settings, [alert.body for alert in alerts[begin : begin + BATCH]], begin)
        if number == MERGED:
            for pack in [*objects.list("packs/")]:
                Thumbnails(settings).make(pack.key)
            _merge(objects)
    for table in ALERT_FUNCTIONS.values():
        objects.put(*write_letters(table, [event(len(alerts), topic=TOPIC)]))
    ledger.expect(objects, TOPIC, len(alerts) + 1)
    nights = sorted({info.key.split("/")[1] for info in objects.list("packs/")})
    ids = sorted({alert.alert_id for alert in alerts})
    return Filled(settings, objects, ids, sorted({alert.object_id for alert in alerts}), nights)


def _merge(objects: Objects) -> None:
    """Merge runs, delete what was merged, and write a checkpoint."""
    for spec in ALL_TABLES.values():
        table = Table(objects, spec)
        for _ in range(2):
            compact(table, datetime.now(UTC), Policy(fanout=4, grace=timedelta()))
        table.keep_checkpoint(timedelta())
