"""Images over S3: what is sound comes without a thread, what is not gets the same error as ever."""

import asyncio
import gzip
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from stampede.alerts.columns import KINDS
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.read.service import ReadService, ThreadRunner
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from stampede.store.s3.gets import S3Gets
from tests.read.api.test_damaged_images import DAMAGES, flip, inside, place
from tests.support.alerts.fits_files import lsst, source, ztf_source
from tests.support.read.read_service import Reader, cutout, draw, fill, serving
from tests.support.store.s3_of_memory import S3OfMemory, s3_of_memory

ZTF, LSST, LARGE = 11, 22, 33
FILE = {"Accept-Encoding": "gzip"}


@pytest.fixture
def endpoint() -> Iterator[S3OfMemory]:
    objects = MemoryObjects()
    rows = [
        cutout(ZTF, "ztf", kind, "ZTF1", 59400.0, ztf_source(number))
        for number, kind in enumerate(KINDS)
    ]
    fill(objects, rows, [], Coverage.of({("ztf", 0): [0]}))
    draw(objects, rows, Coverage.of({("ztf", 0): [0]}))
    fill(
        objects,
        [
            cutout(alert, "lsst", kind, f"{alert}", 60400.0, lsst(source(size, seed=alert)))
            for alert, size in ((LSST, 30), (LARGE, 300))
            for kind in ("difference", "science")
        ],
        [],
        Coverage.of({("lsst", 0): range(2)}),
    )
    with s3_of_memory(objects) as endpoint:
        yield endpoint


@pytest.fixture
def read(endpoint) -> Iterator[Reader]:
    settings = Settings(store=endpoint.url, access_key="key", secret_key="secret")
    yield from serving(make_app(settings))


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The keys that are read by a blocking GET."""
    keys: list[str] = []
    get = S3Gets.get

    def counted(self: S3Gets, key: str, start: int, length: int | None) -> bytes:
        keys.append(key)
        return get(self, key, start, length)

    monkeypatch.setattr(S3Gets, "get", counted)
    return keys


def path(alert: int, kind: str = "science", **query: str) -> str:
    return f"/v1/alerts/{alert}/cutouts/{kind}?" + "&".join(f"{k}={v}" for k, v in query.items())


def test_a_cutout_needs_no_thread(read, endpoint, in_threads):
    for number, kind in enumerate(KINDS):
        got = read(path(ZTF, kind), headers=FILE)
        assert (got.status, got.data) == (200, ztf_source(number))
    assert read(path(LSST)).data == lsst(source(30, seed=LSST))
    for form in ("png", "npy"):
        assert read(path(LSST, format=form)).status == 200
    assert read(f"/v1/alerts/{ZTF}/thumbnail").status == 200
    assert not [key for key in in_threads if key.startswith("packs/")]
    assert endpoint.of_packs()


def test_a_small_file_is_unpacked_without_a_thread(read, monkeypatch):
    packed = read(path(ZTF), headers=FILE).data  # and the location is in memory
    called = []
    call = ThreadRunner.__call__

    def counted(self, function, *args, **kwargs):
        called.append(function)
        return call(self, function, *args, **kwargs)

    monkeypatch.setattr(ThreadRunner, "__call__", counted)
    assert read(path(ZTF)).data == gzip.decompress(packed)
    assert not called
    assert read(path(ZTF, format="png")).status == 200
    assert called


def test_the_cutouts_of_an_alert_take_one_get(read, endpoint):
    for kind in KINDS:
        assert read(path(ZTF, kind)).status == 200
    assert len(endpoint.of_packs()) == 1


def test_requests_for_one_page_share_a_get(read, endpoint):
    read(path(LSST))  # so that the locations are in memory
    endpoint.gets.clear()
    endpoint.seconds = 0.5
    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda kind: read(path(ZTF, kind), headers=FILE), 2 * [*KINDS]))
    assert [got.data for got in found] == 2 * [ztf_source(number) for number in range(3)]
    assert len(endpoint.of_packs()) == 1


def test_a_large_page_is_left_to_a_thread(read, endpoint, in_threads):
    assert read(path(LARGE)).data == lsst(source(300, seed=LARGE))
    assert [key for key in in_threads if key.startswith("packs/")]


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_image_is_a_502(read, endpoint, damage):
    row = place(endpoint.objects, ZTF)
    damage(endpoint.objects, row)
    for form in ({}, {"format": "png"}, {"hdus": "first"}):
        got = read(path(ZTF, **form), headers=FILE)
        assert (got.status, got.headers["cache-control"]) == (502, "no-store")
        assert got.json()["type"] == "urn:stampede:problem:damaged-image"
        assert row["pack"] in got.json()["detail"]
    assert read(path(LSST)).status == 200


def test_damaged_bytes_are_never_kept(read, endpoint):
    row = place(endpoint.objects, ZTF)
    flip(endpoint.objects, row["pack"], inside(row, 500))
    assert read(path(ZTF)).status == 502
    flip(endpoint.objects, row["pack"], inside(row, 500))
    assert read(path(ZTF), headers=FILE).data == ztf_source(KINDS.index("science"))


def test_a_page_that_is_kept_is_verified_for_each_image(read, endpoint):
    row = place(endpoint.objects, ZTF, "template")
    flip(endpoint.objects, row["pack"], inside(row, 500))
    assert read(path(ZTF, "science")).status == 200  # its page is in memory now
    assert read(path(ZTF, "template")).status == 502


@pytest.mark.parametrize("part", ["page", "tail"])
def test_a_damaged_part_of_a_compressed_image_is_a_502(read, endpoint, part):
    row = place(endpoint.objects, LSST)
    flip(endpoint.objects, row["pack"], row[f"{part}_offset"] + 30)
    assert read(path(LSST)).status == 502


@pytest.mark.parametrize(
    "spoil",
    [lambda data: data[:-1], lambda data: data + b"x", lambda data: data[:-1] + b"\0"],
    ids=["shorter", "longer", "changed"],
)
def test_bytes_changed_on_the_way_are_never_served(read, endpoint, spoil):
    endpoint.spoil = spoil
    assert read(path(LSST)).status in (502, 503)
    endpoint.spoil = lambda data: data
    assert gzip.decompress(read(path(LSST), headers=FILE).data) == lsst(source(30, seed=LSST))


@pytest.mark.anyio
async def test_a_request_that_is_cancelled_ends_no_other(endpoint) -> None:
    settings = Settings(store=endpoint.url, access_key="key", secret_key="secret")
    service = ReadService.over(open_objects(settings), settings)
    (location,) = (one for one in service.lookup.alert(ZTF) if one.kind == "science")
    endpoint.seconds = 0.3
    images = [asyncio.ensure_future(service.quick_images.image(location)) for _ in range(3)]
    await asyncio.sleep(0.1)
    images[1].cancel()
    found = await asyncio.gather(*images, return_exceptions=True)
    assert found[::2] == 2 * [ztf_source(KINDS.index("science"))]
    assert isinstance(found[1], asyncio.CancelledError)

    (other,) = (one for one in service.lookup.alert(LSST) if one.kind == "science")
    images = [asyncio.ensure_future(service.quick_images.image(other)) for _ in range(3)]
    await asyncio.sleep(0.1)
    images[0].cancel()  # the one that gets the page for all
    found = await asyncio.gather(*images, return_exceptions=True)
    assert found[1:] == [None, None]  # they go to a thread
    await service.close()
