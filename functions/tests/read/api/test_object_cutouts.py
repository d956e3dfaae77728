"""All cutouts of an object in one request, as files and as a strip."""

import gzip
import io
import json
import tarfile

import numpy as np
import pytest
from PIL import Image

from stampede.alerts.columns import KINDS
from stampede.config.settings import Settings
from stampede.images.animation import AnimationFormat, animate
from stampede.images.png import drawn
from stampede.lookup.object_alerts import MOST_FRAMES
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from tests.support.alerts.fits_files import source, ztf_source
from tests.support.read.html_page import html
from tests.support.read.read_service import LSST_OBJECT, ZTF_OBJECT, cutout, fill, point, serving

PATH = "/v1/objects/ZTF1/cutouts"
NUMBERS = range(1, MOST_FRAMES + 2)


@pytest.fixture(scope="module")
def many():
    """An object with more alerts than a strip has pictures; times run against ids."""
    objects = MemoryObjects()
    mjds = {number: 59000.0 - number for number in NUMBERS}
    cutouts = [
        cutout(number, "ztf", kind, "ZTF1", mjd, ztf_source(number * len(KINDS) + place))
        for number, mjd in mjds.items()
        for place, kind in enumerate(KINDS[:2])
    ]
    # Another survey has an alert of the same id.
    cutouts.append(cutout(1, "lsst", "difference", "2", 59000.0, ztf_source(1)))
    points = [point("ZTF1", "ztf", number, mjd) for number, mjd in mjds.items()]
    points.append(point("ZTF1", "ztf", 1000, 58000.0))  # a detection without an alert
    fill(objects, cutouts, points, Coverage.of({("ztf", 0): [1]}))
    yield from serving(make_app(Settings(), objects))


def members(got) -> dict[str, bytes]:
    assert got.status == 200
    with tarfile.open(fileobj=io.BytesIO(got.data)) as tar:
        return {one.name: tar.extractfile(one).read() for one in tar}


def test_a_tar_has_every_file_of_the_object_as_sent(many):
    found = members(many(PATH))
    missing = json.loads(found.pop("missing.json"))
    assert found.keys() == {f"{n}/{kind}.fits.gz" for n in NUMBERS for kind in KINDS[:2]}
    one = gzip.decompress(found["7/science.fits.gz"])
    assert one == gzip.decompress(
        many("/v1/alerts/7/cutouts/science", headers={"Accept-Encoding": "gzip"}).data
    )
    assert missing["unknown_alerts"] == []
    chosen = members(many(f"{PATH}?kind=template&start=58995"))
    assert chosen.keys() == {*(f"{n}/template.fits.gz" for n in range(1, 6)), "missing.json"}


@pytest.mark.parametrize("format", [*AnimationFormat])
def test_a_strip_shows_each_alert_in_time(many, format):
    got = many(f"{PATH}?format={format}&start=58995&size=63")
    assert got.headers["content-type"] == f"image/{format}"
    shown = Image.open(io.BytesIO(got.data))
    assert (shown.n_frames, shown.size) == (5, (63, 63))
    for frame, number in enumerate(range(5, 0, -1)):
        shown.seek(frame)
        png = many(f"/v1/alerts/{number}/cutouts/science?format=png&size=63&survey=ztf").data
        expected = np.asarray(Image.open(io.BytesIO(png)).convert("L"))
        assert (np.asarray(shown.convert("L")) == expected).all()
    again = many(
        f"{PATH}?format={format}&start=58995&size=63",
        headers={"If-None-Match": got.headers["etag"]},
    )
    assert again.status == 304


def test_pictures_of_a_strip_are_centred():
    pictures = [drawn(source(side, seed=side)) for side in (30, 63)]
    shown = Image.open(io.BytesIO(animate(pictures, AnimationFormat.APNG)))
    assert shown.size == (63, 63)
    assert (np.asarray(shown)[16:46, 16:46] == pictures[0]).all()


def test_the_page_of_an_object_leads_to_strips_that_are_short_enough(many):
    page, _ = html(many("/objects/ZTF1"))
    strips = [a["href"] for a in page.all("a") if "format=apng" in a["href"]]
    assert len(strips) == 2  # no difference was sent
    shown = Image.open(io.BytesIO(many(strips[0]).data))
    assert shown.n_frames == MOST_FRAMES


FAULTS = {
    "/v1/objects/ZTF1/cutouts?format=gif": (400, "choose fewer with start= and end="),
    "/v1/objects/ZTF1/cutouts?format=gif&start=58999&kind=difference": (404, "sent no difference"),
    "/v1/objects/ZTF1/cutouts?kind=psf": (400, "must be one of science"),
    "/v1/objects/ZTF1/cutouts?size=63": (400, "size is for apng and gif"),
    "/v1/objects/ZTF1/cutouts?format=mp4": (400, "must be one of tar, arrow, apng, gif"),
    "/v1/objects/ZTF1/cutouts?band=g": (404, "with this band and time"),
    "/v1/objects/ZTF99/cutouts": (404, "no detection of object ZTF99"),
}


@pytest.mark.parametrize("path", FAULTS)
def test_a_fault_says_what_to_do(many, path):
    status, text = FAULTS[path]
    got = many(path)
    assert (got.status, text in json.loads(got.data)["detail"]) == (status, True), got.data


def test_a_damaged_image_is_a_crossed_square_and_noted(read):
    objects = MemoryObjects()
    damaged = gzip.compress(b"not FITS" * 999)
    cutouts = [
        cutout(1, "ztf", "science", "ZTF1", 59001.0, ztf_source(1)),
        cutout(2, "ztf", "science", "ZTF1", 59002.0, damaged),
    ]
    points = [point("ZTF1", "ztf", number, 59000.0 + number) for number in (1, 2)]
    fill(objects, cutouts, points, Coverage.of({("ztf", 0): [1]}))
    for one in serving(make_app(Settings(), objects)):
        got = one(f"{PATH}?format=apng")
    assert Image.open(io.BytesIO(got.data)).n_frames == 2
    assert "damaged" in got.headers["stampede-incomplete"]
    for id in (ZTF_OBJECT, LSST_OBJECT):
        assert read(f"/v1/objects/{id}/cutouts?format=gif").status == 200
