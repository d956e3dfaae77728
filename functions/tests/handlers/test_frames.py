"""An alert is one alert in whatever frame it comes: Confluent, or a container of one or of many."""

import zlib
from collections.abc import Sequence
from datetime import timedelta
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from stampede.alerts.surveys.rubin_schemas import rubin_schemas
from stampede.config.settings import Settings
from stampede.ingest import files
from stampede.read.app import make_app
from stampede.store.integrity.orphans import Orphans
from stampede.store.open import open_objects
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, PACKETS, TableSpec
from stampede.store.tables.table import Table
from tests.support.alerts import made_alerts
from tests.support.read.read_service import serving
from tests.support.store.stored_packets import store

IDS: dict[str, Any] = {"alert_id": 170587115523932323, "object_id": "313853449953411123"}
IMAGES = ("cutoutScience", "cutoutTemplate", "cutoutDifference")


def record() -> dict:
    made = made_alerts.rubin_record(1101, 3)
    numbers = {"diaSourceId": IDS["alert_id"], "diaObjectId": int(IDS["object_id"])}
    made["diaSource"] |= numbers
    images = {name: made_alerts.FITS + bytes([n]) * 2880 for n, name in enumerate(IMAGES)}
    return made | images


def framed(path: Path) -> dict[str, bytes]:
    """The same alert in several frames."""
    frames = {"confluent": made_alerts.confluent(record(), 1101)}
    schema = rubin_schemas()[1101]
    for codec in ("null", "deflate", "snappy"):
        frames[codec] = made_alerts.contained([record()], schema, codec)
    other = record()
    other["diaSource"] = other["diaSource"] | {"diaSourceId": 5}
    path.write_bytes(made_alerts.contained([other, record()], schema))
    frames["of many"] = list(files.read([path]))[1].data
    assert len(set(frames.values())) == 5
    return frames


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(store=f"file://{tmp_path}/store", spool=tmp_path, refresh_seconds=0)


@pytest.fixture(scope="module")
def frames(tmp_path_factory) -> dict[str, bytes]:
    return framed(tmp_path_factory.mktemp("archive") / "many.avro")


def stored(settings: Settings, spec: TableSpec) -> list[dict]:
    table = Table(open_objects(settings), spec, threads=1)
    return table.lookup([IDS["object_id" if spec is DETECTIONS else "alert_id"]]).to_pylist()


def checksums(rows: Sequence[dict], name: str) -> set[int | None]:
    return {row[name] for row in rows}


@pytest.mark.parametrize("names", [*permutations(["confluent", "null", "deflate"])])
def test_it_is_stored_once(
    settings: Settings, frames: dict[str, bytes], names: Sequence[str]
) -> None:
    alone = settings.model_copy(update={"store": f"{settings.store}-alone"})
    store(alone, [frames[names[0]]])
    for number, name in enumerate(names):
        store(settings, [frames[name]], number)
    crc32 = zlib.crc32(frames["confluent"][5:])
    cutouts, packets = stored(settings, CUTOUTS), stored(settings, PACKETS)
    assert (len(cutouts), len(packets)) == (3, 1)
    assert checksums(cutouts, "message_crc32") == checksums(packets, "crc32") == {crc32}
    assert stored(settings, DETECTIONS) == stored(alone, DETECTIONS)
    assert stored(settings, DETECTIONS)
    for read in serving(make_app(settings)):
        response = read(f"/v1/alerts/{IDS['alert_id']}/packet")
        assert response.data in [frames[name] for name in names]
        assert zlib.crc32(response.data) == packets[0]["framed_crc32"]


def test_every_frame_has_the_number_of_the_record(
    settings: Settings, frames: dict[str, bytes]
) -> None:
    """In one batch, so that the packs hold all of them."""
    store(settings, list(frames.values()))
    assert len(stored(settings, PACKETS)) == 1
    assert len(stored(settings, CUTOUTS)) == 3


def test_its_images_are_kept_once(settings: Settings, frames: dict[str, bytes]) -> None:
    """The packs of all deliveries but one are orphans, which `scrub` deletes."""
    for number, name in enumerate(("confluent", "null", "of many")):
        store(settings, [frames[name]], number)
    objects = open_objects(settings)
    packs = [info.key for info in objects.list("packs/")]
    orphans = Orphans(objects, timedelta(0))
    try:
        needed = [key for key in packs if not orphans.proven(key)]
    finally:
        orphans.close()
    assert len(needed) == 1
    assert {row["pack"] for row in stored(settings, CUTOUTS)} == {*needed}


def test_another_record_is_another_version(settings: Settings, frames: dict[str, bytes]) -> None:
    changed = record()
    changed["diaSource"] = changed["diaSource"] | {"psfFlux": 1.0}
    store(settings, [frames["confluent"]])
    store(settings, [made_alerts.confluent(changed, 1101)], 1)
    assert len(stored(settings, PACKETS)) == 2
    assert len(stored(settings, CUTOUTS)) == 6
