"""thumbnails, as a process: a thumbnail of every alert of every pack."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from stampede.alerts.columns import CUTOUT, KINDS
from stampede.config.settings import Settings
from stampede.errors import Damaged
from stampede.events.cloudevents.s3_events import headers_of, stored_event
from stampede.handlers.compact import compact_tables
from stampede.handlers.reconcile.findings import Finding
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.thumbnails.handler import Thumbnails
from stampede.images.thumbnail import thumbnail
from stampede.runtime.clock import now_mjd
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.packs.pack import Pack, write_pack
from stampede.store.packs.pack_name import night_of
from stampede.store.runs.schema import CUTOUTS, THUMBNAILS
from stampede.store.tables.table import Table
from tests.support.alerts.fits_files import lsst, source, ztf
from tests.support.store.rows import cutout

NIGHT = 61000
COVERAGE = Coverage.of({("alerts", 0): range(4)})


def files_of(alert: int) -> list[bytes | None]:
    """Alert 3 has a damaged image, alert 4 has no template."""
    files = [ztf(source(seed=alert)), lsst(source(30)), lsst(source(30, peak=-500))]
    return [b"GIF89a" if alert == 3 else files[0], None if alert == 4 else files[1], files[2]]


def stored_pack(objects: Objects, night: int = NIGHT, coverage: Coverage = COVERAGE) -> Pack:
    rows = [
        cutout(alert, kind, file, night + 0.5)
        for alert in range(1, 5)
        for kind, file in zip(KINDS, files_of(alert), strict=True)
    ]
    pack = write_pack(pa.Table.from_pylist(rows, CUTOUT), coverage)
    objects.put(pack.key, pack.data)
    return pack


def send_event(served, key: str, **more: str):
    """Post the event of a stored object."""
    event = stored_event("stampede", "us-east-1", key)
    return served.http.request(
        "POST", served.url, body=event.data, headers=headers_of(event) | more
    )


def keys(objects: Objects) -> list[str]:
    return [info.key for info in objects.list("")]


def check(objects: Objects) -> None:
    """Assert that the table has the right thumbnail of every alert, and their coverage."""
    table = Table(objects, THUMBNAILS)
    for place in table.lookup([1, 2, 3, 4]).to_pylist():
        png = objects.get(place["pack"], place["offset"], place["length"])
        assert png == thumbnail(files_of(place["alert_id"]), place["survey"]).png
        assert Image.open(io.BytesIO(png)).size == (193, 63)
        assert place["object_id"] == f"ZTF{place['alert_id']}"
    (run,) = table.runs()
    assert (run.rows, run.coverage) == (4, COVERAGE)


@pytest.mark.integration
def test_a_thumbnail_of_every_alert_of_a_pack(serve) -> None:
    served = serve("thumbnails")
    objects = open_objects(served.settings)
    pack = stored_pack(objects)
    assert send_event(served, pack.key).status == 204
    check(objects)
    (made,) = objects.list("thumbnails/")
    assert night_of(made.key) == NIGHT
    assert pq.read_table(io.BytesIO(objects.get(made.key)))["alert_id"].to_pylist() == [1, 2, 3, 4]
    metrics = served.http.request("GET", f"{served.url}/metrics").data.decode()
    assert 'stampede_thumbnail_panels_total{outcome="damaged"} 1.0' in metrics
    assert 'stampede_thumbnail_panels_total{outcome="absent"} 1.0' in metrics
    assert 'stampede_thumbnail_panels_total{outcome="image"} 10.0' in metrics
    assert 'stampede_flush_alerts_total{function="thumbnails"} 4.0' in metrics


@pytest.mark.integration
def test_the_same_event_again_changes_nothing(serve) -> None:
    served = serve("thumbnails")
    objects = open_objects(served.settings)
    pack = stored_pack(objects)
    for _ in range(3):
        assert send_event(served, pack.key).status == 204
    assert len(keys(objects)) == 3
    check(objects)


def test_compact_merges_their_runs_too(tmp_path: Path) -> None:
    settings = Settings(store=f"file://{tmp_path}/store", fanout=4)
    objects = open_objects(settings)
    made = Thumbnails(settings)
    for number in range(4):
        made.make(stored_pack(objects, NIGHT + number).key)
    compact_tables(settings)
    (run,) = Table(objects, THUMBNAILS).runs()
    assert (run.name.level, run.rows) == (1, 4)


@pytest.mark.parametrize("coverage", [COVERAGE, Coverage()], ids=["Kafka", "no Kafka"])
def test_packs_without_thumbnails_are_found(tmp_path: Path, coverage: Coverage) -> None:
    settings = Settings(store=f"file://{tmp_path}/store", grace_seconds=0, reconcile="thumbnails")
    objects = open_objects(settings)
    key = stored_pack(objects, coverage=coverage).key
    found: list[Finding] = []
    for reconciler in (Reconciler(settings, found.append), Reconciler(settings, found.append)):
        reconciler.run()
    assert found == [Finding("without-thumbnails", key, False)] * 2
    Thumbnails(settings).make(key)
    compact_tables(settings)
    for again in (reconciler, Reconciler(settings)):
        assert not again.run()


@pytest.mark.parametrize("at", [4, 5000, -100])
def test_no_thumbnail_is_drawn_of_a_damaged_pack(tmp_path: Path, at: int) -> None:
    settings = Settings(store=f"file://{tmp_path}/store")
    objects = open_objects(settings)
    key = stored_pack(objects).key
    good = objects.get(key)
    flipped = bytearray(good)
    flipped[at] ^= 16
    for bad in (good[:-100], good[: len(good) // 2], b"", bytes(flipped)):
        objects.put(key, bad)
        with pytest.raises(Damaged, match=key):
            Thumbnails(settings).make(key)
    assert keys(objects) == [key]
    objects.put(key, good)
    Thumbnails(settings).make(key)
    check(objects)


@pytest.mark.integration
def test_other_objects_than_packs_of_cutouts_are_ignored(serve) -> None:
    served = serve("thumbnails")
    objects = open_objects(served.settings)
    places = stored_pack(objects).locations
    run = Table(objects, CUTOUTS).append(places, COVERAGE)
    before = keys(objects)
    thumbnails = f"thumbnails/{NIGHT}/{'0' * 32}.parquet"
    for key in (run, thumbnails, "packs/readme.txt", "deadletters/cutouts/x.parquet"):
        assert send_event(served, key).status == 204
    assert keys(objects) == before
    assert (
        send_event(served, "packs/x", **{"ce-type": "com.amazonaws.s3.ObjectRemoved"}).status == 400
    )


@pytest.mark.integration
def test_a_missing_pack_is_not_tried_again(serve) -> None:
    served = serve("thumbnails", CUTOUT_DAYS=7)
    old, new = (
        f"packs/{int(now_mjd()) - days}/{'0' * 32}.parquet" for days in (8, 6)
    )  # fmt: skip
    response = send_event(served, new)
    assert response.status == 422
    assert new.encode() in response.data
    assert send_event(served, old).status == 204
    assert send_event(serve("thumbnails"), old).status == 422


@pytest.mark.integration
def test_a_store_that_is_down_is_503(serve) -> None:
    served = serve("thumbnails", STORE="http://127.0.0.1:1/bucket")
    assert send_event(served, f"packs/{NIGHT}/{'0' * 32}.parquet").status == 503


def test_in_a_ceph(serve, bucket: Settings) -> None:
    secret = bucket.secret_key.get_secret_value()
    served = serve(
        "thumbnails", STORE=bucket.store, ACCESS_KEY=bucket.access_key, SECRET_KEY=secret
    )
    objects = open_objects(bucket)
    pack = stored_pack(objects)
    assert send_event(served, pack.key).status == 204
    assert send_event(served, pack.key).status == 204
    check(objects)
    assert send_event(served, f"packs/{NIGHT}/{'0' * 32}.parquet").status == 422
