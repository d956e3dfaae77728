"""reconcile derives the rows of `moving` again: of alerts stored before, and of a lost run."""

from collections import Counter
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.handlers.reconcile import moving
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects
from stampede.store.runs.schema import DETECTIONS, MOVING, PACKETS
from stampede.store.tables.table import Table
from stampede_simulator.simulator import Mix, Simulator
from tests.support.alerts import made_alerts
from tests.support.store.stored_packets import store, ztf_with_images

MESSAGES = 12


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(store=f"file://{tmp_path}/store", spool=tmp_path, reconcile="moving")


def messages() -> list[bytes]:
    """Simulated alerts of Rubin, of which half show a body; real ones of ZTF, if they are here."""
    mix = Mix(lsst_share=1.0, solar_system=0.5, null_cutouts=0.0)
    made = [alert.body for alert in Simulator(1, mix=mix).alerts(MESSAGES)]
    real = sorted(made_alerts.REAL.glob("ztf/*.avro"))[:MESSAGES]
    return made + [path.read_bytes() for path in real]


def rows_of(objects: Objects) -> list[dict]:
    table = Table(objects, MOVING, threads=1)
    table.refresh()
    files = [table.reader.open(part) for part in table.runs()]
    found = [row for file in files for rows in file.read(file.numbers) for row in rows.to_pylist()]
    return sorted(found, key=lambda row: (row["designation"], row["alert_id"]))


def keys(objects: Objects) -> list[str]:
    return [info.key for info in objects.list("tables/moving/")]


def lose(objects: Objects) -> None:
    for key in keys(objects):
        objects.delete(key)


def test_lost_runs_are_derived_again(settings: Settings) -> None:
    store(settings, messages())
    objects = open_objects(settings)
    good = rows_of(objects)
    assert {row["survey"] for row in good} >= {"lsst"}
    assert any(row["phase_angle"] for row in good)
    assert Reconciler(settings).run() == Counter()
    lose(objects)
    assert Reconciler(settings).run(repair=False) == {"without-observations": 1}
    assert not keys(objects)
    assert Reconciler(settings).run() == {"without-observations": 1}
    assert rows_of(objects) == good
    assert Reconciler(settings).run() == Counter()


def test_a_store_of_an_earlier_version_gets_the_table(settings: Settings) -> None:
    """Several batches; the points of one were not stored yet, so nothing of it is missing."""
    sent = messages()
    for first in range(0, len(sent), 4):
        store(settings, sent[first : first + 4], first)
    objects = open_objects(settings)
    good = rows_of(objects)
    lose(objects)
    store(settings, sent[:1], 1000)
    Reconciler(settings).run()
    names = {(row["designation"], row["alert_id"]) for row in good}
    assert {(row["designation"], row["alert_id"]) for row in rows_of(objects)} == names
    assert Table(objects, MOVING).coverage() == Table(objects, DETECTIONS).coverage()


def test_a_batch_that_is_being_stored_lacks_nothing(settings: Settings) -> None:
    """Its packets are there, its points not yet."""
    store(settings, messages())
    objects = open_objects(settings)
    lose(objects)
    for info in [*objects.list("tables/detections/")]:
        objects.delete(info.key)
    assert Reconciler(settings).run() == Counter()


def test_a_pass_of_limited_time_leaves_a_large_run(settings: Settings, monkeypatch) -> None:
    store(settings, messages())
    objects = open_objects(settings)
    lose(objects)
    monkeypatch.setattr(moving, "MOST", 3)
    reconciler = Reconciler(settings)
    reconciler.run(seconds=60)
    assert not keys(objects)
    assert reconciler.run() == {"without-observations": 1}
    assert rows_of(objects)


def test_packets_that_are_not_kept_any_more_are_left_out(settings: Settings) -> None:
    store(settings, [*messages(), ztf_with_images(5, 60000.0)])
    objects = open_objects(settings)
    lose(objects)
    kept = settings.model_copy(update={"packet_days": 1})
    for info in [*objects.list("packets/")]:
        objects.delete(info.key)
    assert Reconciler(kept).run() == {"without-observations": 1}
    assert rows_of(objects) == []
    assert Table(objects, MOVING).coverage() == Table(objects, PACKETS).coverage()


def test_a_damaged_pack_is_left_for_scrub(settings: Settings) -> None:
    store(settings, messages())
    objects = open_objects(settings)
    lose(objects)
    pack = next(iter(objects.list("packets/"))).key
    data = bytearray(objects.get(pack))
    for place in range(100, len(data) // 2, 97):
        data[place] ^= 1
    objects.delete(pack)
    objects.put(pack, bytes(data))
    assert Reconciler(settings).run() == {"without-observations": 1}
    assert not keys(objects)
