"""Damaged and missing images are told, never served, and cost only themselves."""

import gzip
import io
import json
import tarfile
from collections.abc import Iterator

import pyarrow as pa
import pytest

from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import CUTOUTS, THUMBNAILS
from stampede.store.tables.table import Table
from tests.support.alerts.fits_files import lsst, source, ztf_source
from tests.support.read.read_service import ZTF_ALERT, Reader, cutout, draw, fill, serving

OTHER = 12345
IMAGE = {"Accept-Encoding": "gzip"}


@pytest.fixture
def objects() -> MemoryObjects:
    """Two packs of cutouts, one alert each, and the thumbnail of the first."""
    objects = MemoryObjects()
    for offset, alert in enumerate((ZTF_ALERT, OTHER)):
        rows = [
            cutout(alert, "ztf", kind, "ZTF1", 59400.0, ztf_source(offset + number))
            for number, kind in enumerate(("science", "template", "difference"))
        ]
        coverage = Coverage.of({("ztf", 0): [offset]})
        fill(objects, rows, [], coverage)
        if not offset:
            draw(objects, rows, coverage)
    return objects


@pytest.fixture
def read(objects) -> Iterator[Reader]:
    yield from serving(make_app(Settings(), objects))


def place(objects, alert: int, kind: str = "science") -> dict:
    rows = Table(objects, CUTOUTS).lookup([alert]).to_pylist()
    return next(row for row in rows if row["kind"] == kind)


def flip(objects, key: str, at: int, bit: int = 1) -> None:
    data = bytearray(objects.get(key))
    data[at] ^= bit
    objects.put(key, bytes(data))


def cut(objects, key: str, size: int) -> None:
    objects.put(key, objects.get(key)[:size])


def inside(row: dict, at: int) -> int:
    """Where byte `at` of an image is in its pack, if its page is stored as it is."""
    return row["page_offset"] + 12 + row["start"] + at


DAMAGES = {
    "a flipped bit": lambda objects, row: flip(objects, row["pack"], inside(row, 500)),
    "a flipped last bit": lambda objects, row: flip(
        objects, row["pack"], inside(row, row["length"] - 1)
    ),
    "a flipped bit of the frame's header": lambda objects, row: flip(
        objects, row["pack"], row["page_offset"] + 4
    ),
    "a frame that says it is larger": lambda objects, row: flip(
        objects, row["pack"], row["page_offset"] + 8, 0x80
    ),
    "a pack cut short in the image": lambda objects, row: cut(
        objects, row["pack"], inside(row, 100)
    ),
    "a pack cut short before the image": lambda objects, row: cut(objects, row["pack"], 4),
    "an empty pack": lambda objects, row: cut(objects, row["pack"], 0),
    "a lost pack": lambda objects, row: objects.delete(row["pack"]),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_image_is_a_502_that_no_cache_keeps(objects, read, damage):
    row = place(objects, ZTF_ALERT)
    path = f"/v1/alerts/{ZTF_ALERT}/cutouts/science"
    assert read(path, headers=IMAGE).status == 200
    damage(objects, row)
    for form in ("", "?format=png", "?format=npy", "?hdus=first"):
        for headers in (IMAGE, {"Range": "bytes=0-9"}):
            got = read(path + form, headers=headers)
            assert got.status == 502, (form, headers)
            assert got.headers["content-type"] == "application/problem+json"
            assert got.headers["cache-control"] == "no-store"
            problem = got.json()
            assert problem["type"] == "urn:stampede:problem:damaged-image"
            assert row["pack"] in problem["detail"]
    assert read(path, "HEAD").status == 502
    assert "etag" not in read(path, "HEAD").headers
    good = read(f"/v1/alerts/{OTHER}/cutouts/science", headers=IMAGE)
    assert (good.status, good.data) == (200, ztf_source(1))


def test_a_repaired_image_is_served_again(objects, read):
    row = place(objects, ZTF_ALERT)
    path, good = f"/v1/alerts/{ZTF_ALERT}/cutouts/science", objects.get(row["pack"])
    flip(objects, row["pack"], inside(row, 500))
    assert read(path, headers=IMAGE).status == 502
    objects.put(row["pack"], good)
    got = read(path, headers=IMAGE)
    assert (got.status, got.data) == (200, ztf_source(0))
    assert "immutable" in got.headers["cache-control"]


def test_a_damaged_thumbnail_is_a_502(objects, read):
    row = Table(objects, THUMBNAILS).lookup([ZTF_ALERT]).to_pylist()[0]
    path = f"/v1/alerts/{ZTF_ALERT}/thumbnail"
    assert read(path).status == 200
    flip(objects, row["pack"], row["offset"] + 60)
    assert read(path).json()["type"] == "urn:stampede:problem:damaged-image"
    objects.delete(row["pack"])
    got = read(path)
    assert (got.status, got.headers["cache-control"]) == (502, "no-store")


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_damage_costs_a_large_query_its_own_images_only(objects, read, damage):
    damage(objects, place(objects, ZTF_ALERT))
    body = json.dumps({"ids": [ZTF_ALERT, OTHER, 404]}).encode()

    tar = read("/v1/cutouts", "POST", body).data
    with tarfile.open(fileobj=io.BytesIO(tar)) as file:
        found = {member.name: file.extractfile(member).read() for member in file}
    missing = json.loads(found.pop("missing.json"))
    damaged = missing.pop("damaged")
    assert f"{ZTF_ALERT}/science" in damaged
    others = {"no_such_cutouts": [], "gone": [], "unreadable_alerts": []}
    assert missing == {"unknown_alerts": ["404"], **others}
    names = {
        f"{alert}/{kind}"
        for alert in (ZTF_ALERT, OTHER)
        for kind in ("science", "template", "difference")
    }
    assert {name.removesuffix(".fits.gz") for name in found} == names - {*damaged}
    assert all(not name.startswith(f"{OTHER}/") for name in damaged)
    assert found[f"{OTHER}/science.fits.gz"] == ztf_source(1)

    arrow = read("/v1/cutouts?format=arrow", "POST", body).data
    batches = list(pa.ipc.open_stream(arrow).iter_batches_with_custom_metadata())
    assert json.loads(batches[-1][1][b"stampede.damaged"]) == damaged
    rows = [row for batch, _ in batches for row in batch.to_pylist()]
    assert {f"{row['alert_id']}/{row['kind']}" for row in rows if row["fits"] is None} == {*damaged}


@pytest.fixture
def of_one_detector() -> MemoryObjects:
    """A pack of two alerts, which share the tails of their compressed files."""
    objects = MemoryObjects()
    rows = [
        cutout(alert, "lsst", kind, f"{alert}", 59400.0, lsst(source(30, seed=alert)))
        for alert in (1, 2)
        for kind in ("difference", "science")
    ]
    fill(objects, rows, [], Coverage.of({("lsst", 0): range(2)}))
    return objects


@pytest.mark.parametrize("part", ["page", "tail"])
@pytest.mark.parametrize("at", [0, 4, 5, 9, 30, -1], ids=lambda at: f"byte {at}")
def test_every_byte_of_a_compressed_image_counts(of_one_detector, part, at):
    objects = of_one_detector
    row, good = place(objects, 1), objects.get(place(objects, 1)["pack"])
    offset, length = row[f"{part}_offset"], row[f"{part}_length"]
    file = lsst(source(30, seed=1))
    body = json.dumps({"ids": ["1", "2"]}).encode()
    for bit in (1, 0x80):
        for read in serving(make_app(Settings(), objects)):
            flip(objects, row["pack"], offset + (at if at >= 0 else length - 1), bit)
            path = "/v1/alerts/1/cutouts/science"
            got = read(path)
            # A flag that no reader needs may be all that is wrong.
            assert got.status == 502 or (got.status, got.data) == (200, file)
            other = read("/v1/alerts/2/cutouts/science")
            assert other.status == (200 if part == "page" else got.status)
            tar = read("/v1/cutouts", "POST", body).data
            with tarfile.open(fileobj=io.BytesIO(tar)) as members:
                found = {one.name: members.extractfile(one).read() for one in members}
            damaged = json.loads(found.pop("missing.json"))["damaged"]
            assert ("1/science" in damaged) == (got.status == 502)
            for name, data in found.items():
                assert gzip.decompress(data) == lsst(source(30, seed=int(name[0])))
            objects.put(row["pack"], good)
            assert read(path).data == file


def test_two_images_swapped_in_the_table_are_found(objects):
    one, other = place(objects, ZTF_ALERT), place(objects, ZTF_ALERT, "template")
    assert one["pack"] == other["pack"]
    rows = Table(objects, CUTOUTS)
    swapped = rows.lookup([ZTF_ALERT]).to_pylist()
    for row in swapped:
        twin = {"science": other, "template": one}.get(row["kind"])
        if twin:
            row.update(start=twin["start"], length=twin["length"])
    for info in [*objects.list("tables/cutouts/")]:
        objects.delete(info.key)
    rows.append(pa.Table.from_pylist(swapped, CUTOUTS.schema), Coverage())
    for read in serving(make_app(Settings(), objects)):
        assert read(f"/v1/alerts/{ZTF_ALERT}/cutouts/science").status == 502
        assert read(f"/v1/alerts/{ZTF_ALERT}/cutouts/difference").status == 200
