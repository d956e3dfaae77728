"""Thumbnails, and images that retention has deleted."""

import io
import json
import tarfile
from collections.abc import Iterator

import pyarrow as pa
import pytest
from PIL import Image

from stampede.alerts.columns import KINDS
from stampede.config.settings import Settings
from stampede.images.png import placeholder
from stampede.images.thumbnail import thumbnail
from stampede.read.app import make_app
from stampede.runtime.clock import now_mjd
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from tests.support.alerts.fits_files import lsst, source, ztf
from tests.support.read.html_page import html
from tests.support.read.read_service import (
    BOTH,
    ZTF_ALERT,
    Reader,
    cutout,
    draw,
    fill,
    point,
    serving,
)

FILES = [ztf(source(seed=1)), None, lsst(source(30))]
PNG = thumbnail(FILES, "ztf").png
COVERAGE = Coverage.of({("ztf", 0): [1]})
DAYS = 30
TONIGHT = float(int(now_mjd()))


def cutouts(alert_id: int, mjd: float, object_id: str = "Z1") -> list[dict]:
    return [
        cutout(alert_id, "ztf", kind, object_id, mjd, file)
        for kind, file in zip(KINDS, FILES, strict=True)
    ]


@pytest.fixture(scope="module")
def objects() -> MemoryObjects:
    """Alert 1 has a thumbnail, 2 has none; 5 is old. Retention deleted 3, something else 4."""
    objects = MemoryObjects()
    fill(
        objects, cutouts(1, TONIGHT), [point("Z1", "ztf", n, TONIGHT + n) for n in (1, 2)], COVERAGE
    )
    fill(objects, cutouts(2, TONIGHT), [point("Z1", "ztf", 2, TONIGHT)], COVERAGE)
    nights = {3: TONIGHT - DAYS - 2, 4: TONIGHT - DAYS + 2, 5: TONIGHT - DAYS - 3}
    for alert_id, mjd in nights.items():
        rows = cutouts(alert_id, mjd, f"Z{alert_id}")
        fill(objects, rows, [point(f"Z{alert_id}", "ztf", alert_id, mjd)], COVERAGE)
        draw(objects, rows, COVERAGE)
    draw(objects, cutouts(1, TONIGHT), COVERAGE)
    for info in [*objects.list("packs/"), *objects.list("thumbnails/")]:
        if f"/{int(nights[3])}/" in info.key or f"/{int(nights[4])}/" in info.key:
            objects.delete(info.key)
    return objects


@pytest.fixture(scope="module")
def reader(objects: MemoryObjects) -> Iterator[Reader]:
    yield from serving(make_app(Settings(cutout_days=DAYS), objects))


def test_a_thumbnail_is_served_as_it_was_drawn(reader: Reader) -> None:
    got = reader("/v1/alerts/1/thumbnail")
    assert (got.status, got.data) == (200, PNG)
    assert got.headers["content-type"] == "image/png"
    assert got.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert got.headers["content-disposition"] == 'inline; filename="1.png"'
    assert Image.open(io.BytesIO(got.data)).size == (193, 63)
    again = reader("/v1/alerts/1/thumbnail", headers={"If-None-Match": got.headers["etag"]})
    assert (again.status, again.data) == (304, b"")
    part = reader("/v1/alerts/1/thumbnail", headers={"Range": "bytes=1-3"})
    assert (part.status, part.data) == (206, b"PNG")
    head = reader("/v1/alerts/1/thumbnail", "HEAD")
    assert (head.status, head.headers["etag"]) == (200, got.headers["etag"])
    assert reader("/v1/alerts/1").json()["thumbnail"] == "/v1/alerts/1/thumbnail"


PROBLEMS = {
    "/v1/alerts/2/thumbnail": (404, "no-thumbnail"),
    "/v1/alerts/99/thumbnail": (404, "unknown-alert"),
    "/v1/alerts/1/thumbnail?survey=lsst": (404, "unknown-alert"),
    "/v1/alerts/abc/thumbnail": (400, "bad-parameter"),
    "/v1/alerts/3/thumbnail": (410, "gone"),
    "/v1/alerts/3/cutouts/science": (410, "gone"),
    "/v1/alerts/3/cutouts/science?format=png": (410, "gone"),
    "/v1/alerts/3/cutouts/template": (404, "no-such-cutout"),
    "/v1/alerts/4/thumbnail": (502, "damaged-image"),
    "/v1/alerts/4/cutouts/science": (502, "damaged-image"),
}


@pytest.mark.parametrize(("path", "expected"), PROBLEMS.items(), ids=PROBLEMS)
def test_why_there_is_no_image(reader: Reader, path: str, expected: tuple[int, str]) -> None:
    got = reader(path)
    status, name = expected
    assert (got.status, got.json()["type"]) == (status, f"urn:stampede:problem:{name}")
    assert got.headers["cache-control"] == "no-store"
    image = reader(path, headers={"Accept": "image/avif,image/*"})
    assert (image.status, image.data) == (status, placeholder())


def test_images_past_retention_are_served_until_they_are_deleted(reader: Reader) -> None:
    assert reader("/v1/alerts/5/thumbnail").data == PNG
    assert reader("/v1/alerts/5/cutouts/science").status == 200


def test_a_missing_pack_is_damage_without_retention(objects: MemoryObjects) -> None:
    for read in serving(make_app(Settings(), objects)):
        assert read("/v1/alerts/3/cutouts/science").status == 502


def test_an_alert_of_both_surveys_needs_the_survey(read: Reader) -> None:
    path = f"/v1/alerts/{BOTH}/thumbnail"
    assert read(path).json()["type"] == "urn:stampede:problem:ambiguous-alert"
    thumbnails = [read(f"{path}?survey={survey}") for survey in ("ztf", "lsst")]
    assert [each.status for each in thumbnails] == [200, 200]
    assert thumbnails[0].headers["etag"] != thumbnails[1].headers["etag"]


def test_deleted_images_are_listed_in_a_tar_and_null_in_arrow(reader: Reader) -> None:
    got = reader("/v1/cutouts", "POST", b"1 3 99")
    with tarfile.open(fileobj=io.BytesIO(got.data)) as tar:
        assert tar.getnames() == ["1/difference.fits.gz", "1/science.fits.gz", "missing.json"]
        missing = json.loads(tar.extractfile("missing.json").read())
    assert missing["unknown_alerts"] == ["99"]
    assert sorted(missing["gone"]) == ["3/difference", "3/science"]
    assert sorted(missing["no_such_cutouts"]) == ["1/template", "3/template"]
    arrow = reader("/v1/cutouts?format=arrow", "POST", b"1 3")
    rows = pa.ipc.open_stream(arrow.data).read_all().to_pylist()
    assert {(r["alert_id"], r["kind"]) for r in rows if r["fits"]} == {
        (1, "science"),
        (1, "difference"),
    }
    assert len(rows) == 6


def test_a_page_shows_cutouts_where_thumbnails_are_missing(reader: Reader) -> None:
    page, text = html(reader("/objects/Z1"))
    sources = [image["src"] for image in page.all("img")]
    assert sources.count("/v1/alerts/1/thumbnail?survey=ztf") == 1
    assert len(sources) == 1 + 2  # and the two cutouts of alert 2
    for source_url in sources:
        assert reader(source_url).headers["content-type"] == "image/png"
    links = [a["href"] for a in page.all("a")]
    assert "/v1/alerts/1/cutouts/science?survey=ztf" in links
    assert "/v1/alerts/1/cutouts/template?survey=ztf" not in links
    assert "template: not sent" in text


def test_an_alert_without_a_thumbnail_is_a_404(store: MemoryObjects, read: Reader) -> None:
    assert read(f"/v1/alerts/{ZTF_ALERT}/thumbnail").status == 404
