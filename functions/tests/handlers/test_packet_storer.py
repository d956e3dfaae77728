"""Packets through the functions: what lightcurves stores, and what repairs it."""

import io
import json
import threading
import time
from collections import Counter
from hashlib import sha256
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.events.cloudevents.envelope import Envelope, envelope_of
from stampede.handlers import lightcurves
from stampede.handlers.decoding import make_batch_decoder
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.scrub.deep_audit import deep_audit
from stampede.read.app import make_app
from stampede.runtime.clock import now_mjd
from stampede.store.integrity.references import check_packs
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects, open_replica
from stampede.store.runs.schema import DETECTIONS, MOVING, PACKET_PACKS, PACKETS, POSITIONS
from stampede.store.tables.table import Table
from tests.support.alerts.fits_files import source, ztf
from tests.support.read.read_service import serving
from tests.support.store.stored_packets import store, ztf_with_images

TODAY = int(now_mjd())


def alert(candid: int, mjd: float = TODAY - 1.5) -> bytes:
    return ztf_with_images(candid, mjd)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Two sites that are directories; no object is too young to be checked."""
    return Settings(
        store=f"file://{tmp_path}/first",
        replica=f"file://{tmp_path}/second",
        spool=tmp_path,
        grace_seconds=0,
    )


def keys(objects: Objects, prefix: str = "packets/") -> list[str]:
    return [info.key for info in objects.list(prefix)]


def one_pass(settings: Settings, steps: str, **options: bool) -> Counter:
    return Reconciler(settings.model_copy(update={"reconcile": steps})).run(**options)


def served(settings: Settings, candid: int) -> tuple[int, bytes]:
    for read in serving(make_app(settings)):
        got = read(f"/v1/alerts/{candid}/packet")
        return got.status, got.data
    raise AssertionError


def test_a_row_has_the_record_that_the_alert_came_in(settings: Settings) -> None:
    attributes = {
        **{"time": "2026-03-01T04:05:06.789Z", "partitionkey": "ké%", "kafkaheadertrace": "a,b"},
        **{"datacontenttype": "avro/binary", "id": "x"},
    }
    store(settings, [alert(1), alert(2)], 7, [envelope_of(attributes), Envelope()])
    objects = open_objects(settings)
    [key] = keys(objects)
    first, second = pq.read_table(io.BytesIO(objects.get(key))).to_pylist()
    assert (first["topic"], first["partition"], first["offset"]) == ("alerts", 0, 7)
    assert first["time"].isoformat() == "2026-03-01T04:05:06.789000+00:00"
    assert first["key"] == "ké%"
    assert json.loads(first["headers"]) == {"trace": "a,b", "content-type": "avro/binary"}
    assert [second[name] for name in ("offset", "time", "key", "headers")] == [8, None, None, None]
    assert ztf(source(seed=1)) not in first["packet"]
    assert first["science_length"] == len(ztf(source(seed=1)))


def test_each_night_has_its_pack(settings: Settings) -> None:
    messages = [alert(n, TODAY - 20 + n % 3) for n in range(1, 10)]
    store(settings, messages)
    objects = open_objects(settings)
    assert [key.split("/")[1] for key in keys(objects)] == [str(TODAY - 20 + n) for n in range(3)]
    [run] = Table(objects, PACKETS).runs()
    assert (run.rows, run.coverage) == (9, Table(objects, DETECTIONS).coverage())
    assert served(settings, 5) == (200, messages[4])


def test_points_are_stored_only_after_their_packets(settings: Settings, monkeypatch) -> None:
    """Whatever write fails, an offset that `detections` covers has its packet and its position."""
    objects = open_objects(settings)
    monkeypatch.setattr(lightcurves, "open_objects", lambda settings: objects)
    put, calls = objects.put, []

    def failing(key: str, *rest) -> None:
        calls.append(key)
        if len(calls) == failing_at:
            raise StoreDown("no")
        put(key, *rest)

    monkeypatch.setattr(objects, "put", failing)
    for failing_at in range(1, 10):
        calls.clear()
        try:
            store(settings, [alert(failing_at)], failing_at, functions=[lightcurves])
        except StoreDown:
            assert failing_at <= 6
        else:
            assert failing_at > 6
        points = Table(objects, DETECTIONS).coverage()
        for before in (PACKETS, POSITIONS, MOVING):
            assert not points - Table(objects, before).coverage()
        assert not check_packs(objects, PACKET_PACKS).lost


@pytest.mark.parametrize(
    "prefix",
    ["alerts/", "packets/", "tables/packets/", "tables/positions/", "tables/moving/"],
)
def test_points_wait_for_every_other_write(settings: Settings, monkeypatch, prefix: str) -> None:
    objects = open_objects(settings)
    monkeypatch.setattr(lightcurves, "open_objects", lambda settings: objects)
    put = objects.put

    def failing(key: str, *rest) -> None:
        if key.startswith(prefix):
            raise StoreDown("no")
        put(key, *rest)

    monkeypatch.setattr(objects, "put", failing)
    with pytest.raises(StoreDown):
        store(settings, [alert(1)], functions=[lightcurves])
    assert not keys(objects, "tables/detections/")
    monkeypatch.undo()
    store(settings, [alert(1)], functions=[lightcurves])
    assert keys(objects, prefix)
    assert keys(objects, "tables/detections/")


def test_a_store_that_refuses_is_not_asked_for_each_raw_file(
    settings: Settings, monkeypatch
) -> None:
    objects, asked = open_objects(settings), []
    monkeypatch.setattr(lightcurves, "open_objects", lambda settings: objects)

    def failing(key: str, *rest) -> None:
        asked.append(key)
        time.sleep(0.2)
        raise StoreDown("no")

    def many_files(*arguments):
        decoder = make_batch_decoder(*arguments)

        def detections(*messages):  # as of a batch with so many schemas
            found = BatchDecoder.detections(decoder, *messages)
            return found._replace(raw=20 * found.raw)

        monkeypatch.setattr(decoder, "detections", detections)
        return decoder

    monkeypatch.setattr(objects, "put", failing)
    monkeypatch.setattr(lightcurves, "make_batch_decoder", many_files)
    with pytest.raises(StoreDown):
        store(settings, [alert(1)], functions=[lightcurves])
    assert len(asked) <= 4


def test_raw_alerts_and_packets_are_stored_at_once(settings: Settings, monkeypatch) -> None:
    """And the points after both; every write has its digest, which S3 would compute again."""
    objects = open_objects(settings)
    monkeypatch.setattr(lightcurves, "open_objects", lambda settings: objects)
    put, ended, packets_stored = objects.put, [], threading.Event()

    def waiting(key: str, data, digest: str | None = None) -> None:
        assert digest == sha256(data).hexdigest()
        if key.startswith("alerts/"):
            assert packets_stored.wait(60)
        put(key, data, digest)
        ended.append(key.rpartition("/")[0].split("/")[:2])
        if key.startswith("tables/packets/"):
            packets_stored.set()

    monkeypatch.setattr(objects, "put", waiting)
    store(settings, [alert(1)], functions=[lightcurves])
    night = str(TODAY - 2)
    assert ended == [
        ["packets", night],
        ["tables", "packets"],
        ["alerts", "ztf"],
        ["tables", "positions"],
        ["tables", "moving"],
        ["tables", "detections"],
    ]


def test_reconcile_indexes_a_pack_that_a_crash_left_alone(settings: Settings) -> None:
    store(settings, [alert(1), alert(2)])
    objects = open_objects(settings)
    [run] = keys(objects, "tables/packets/")
    good = objects.get(run)
    objects.delete(run)
    assert served(settings, 1)[0] == 404
    assert one_pass(settings, "packs") == {"unindexed": 1}
    assert (keys(objects, "tables/packets/"), objects.get(run)) == ([run], good)
    assert served(settings, 1) == (200, alert(1))
    assert one_pass(settings, "packs") == {}


def test_the_second_site_serves_the_same_message(settings: Settings) -> None:
    store(settings, [alert(1), alert(2)])
    one_pass(settings, "replica")
    second = settings.model_copy(update={"store": settings.replica, "replica": ""})
    assert served(second, 2) == (200, alert(2))
    assert keys(open_objects(settings), "") == keys(open_replica(settings), "")


@pytest.mark.parametrize("site", ["store", "replica"])
@pytest.mark.parametrize("lost", [True, False], ids=["lost", "damaged"])
def test_a_deep_audit_names_and_mends_a_pack(settings: Settings, site: str, lost: bool) -> None:
    store(settings, [alert(1), alert(2)])
    one_pass(settings, "replica")
    assert not deep_audit(settings, ["store", "replica"]).faults
    objects = {"store": open_objects, "replica": open_replica}[site](settings)
    [key] = keys(objects)
    good = objects.get(key)
    if lost:
        objects.delete(key)
    else:
        objects.put(key, good[:999] + bytes([good[999] ^ 1]) + good[1000:])
    result = deep_audit(settings, ["store", "replica"], repair=True)
    assert key in {fault.key for fault in result.faults}
    assert not result.left
    assert objects.get(key) == good


def test_a_row_that_points_to_another_packet_is_found(settings: Settings) -> None:
    store(settings, [alert(1), alert(2)])
    objects = open_objects(settings)
    table = Table(objects, PACKETS)
    rows, coverage = table.lookup([1, 2]), table.coverage()
    at = rows.schema.get_field_index("row")
    [run] = keys(objects, "tables/packets/")
    objects.delete(run)
    Table(objects, PACKETS).append(
        rows.set_column(at, rows.schema.field(at), rows["row"].take([1, 0])), coverage
    )
    [fault] = deep_audit(settings, ["store"]).faults
    assert fault.key == keys(objects)[0]
    assert "points to other bytes" in fault.why


def test_retention_has_its_own_number_of_days(settings: Settings) -> None:
    old, young = alert(1, TODAY - 30.5), alert(2, TODAY - 3.5)
    store(settings, [old])
    store(settings, [young], 1)
    one_pass(settings, "replica")
    limited = settings.model_copy(update={"packet_days": 10, "cutout_days": 50})
    assert one_pass(limited, "packs,retention,replica") == {"expired": 2}
    for site in (open_objects(settings), open_replica(settings)):
        assert [key.split("/")[1] for key in keys(site)] == [str(TODAY - 4)]
        assert len(keys(site, "packs/")) == 2
    assert served(limited, 1)[0] == 410
    assert served(limited, 2) == (200, young)
    assert not deep_audit(limited, ["store", "replica"]).faults
    assert one_pass(limited, "restore,packs,retention,replica") == {}
