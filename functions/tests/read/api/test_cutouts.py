import gzip
import json
from io import BytesIO

import cramjam
import numpy as np
import pytest
from astropy.io import fits
from PIL import Image

from stampede.images.png import greys
from stampede.images.stretch import Stretch, limits
from tests.support.alerts.fits_files import lsst, source, ztf
from tests.support.read.read_service import BOTH, LSST_ALERT, LSST_OBJECT, ZTF_ALERT

SCIENCE = f"/v1/alerts/{ZTF_ALERT}/cutouts/science"


def test_a_cutout_is_sent_gzipped_to_clients_that_accept_it(read):
    got = read(SCIENCE, headers={"Accept-Encoding": "gzip"})
    assert got.status == 200
    assert got.headers["content-type"] == "application/fits"
    assert got.headers["content-encoding"] == "gzip"
    assert got.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert got.headers["vary"] == "Accept-Encoding"
    assert got.headers["content-disposition"] == f'inline; filename="{ZTF_ALERT}-science.fits"'
    assert got.data == ztf(source(seed=0))


def test_a_client_without_gzip_gets_plain_fits(read):
    got = read(SCIENCE, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in got.headers
    assert got.data == gzip.decompress(ztf(source(seed=0)))


CODINGS = {
    "gzip": ("gzip", gzip.decompress),
    "zstd": ("zstd", lambda data: bytes(cramjam.zstd.decompress(data))),
    "zstd, gzip;q=0.5": ("zstd", lambda data: bytes(cramjam.zstd.decompress(data))),
    "gzip, deflate, br, zstd": ("gzip", gzip.decompress),
    "br": (None, bytes),
    "gzip;q=0": (None, bytes),
}


@pytest.mark.parametrize(("accepted", "expected"), CODINGS.items(), ids=CODINGS)
def test_fits_comes_in_the_coding_that_the_client_accepts(read, accepted, expected):
    coding, decode = expected
    paths = (SCIENCE, f"/v1/alerts/{LSST_ALERT}/cutouts/science")
    files = (gzip.decompress(ztf(source(seed=0))), lsst(source(30, seed=0)))
    for path, file in zip(paths, files, strict=True):
        got = read(path, headers={"Accept-Encoding": accepted})
        assert got.headers.get("content-encoding") == coding
        assert got.headers["vary"] == "Accept-Encoding"
        assert decode(got.data) == file
        tag = got.headers["etag"]
        assert (tag == read(path).headers["etag"]) == (coding is None)
        again = {"Accept-Encoding": accepted, "If-None-Match": tag}
        assert read(path, headers=again).status == 304


@pytest.mark.parametrize(("kind", "seed"), [("science", 0), ("difference", 2)])
def test_all_hdus_are_served(read, kind, seed):
    got = read(f"/v1/alerts/{LSST_ALERT}/cutouts/{kind}")
    assert got.data == lsst(source(30, seed=seed))


def test_the_first_image_alone_is_strictly_valid_fits(read):
    got = read(f"{SCIENCE}?hdus=first", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in got.headers
    with fits.open(BytesIO(got.data)) as hdus:
        assert len(hdus) == 1
        np.testing.assert_array_equal(hdus[0].data, source(seed=0))


def test_npy_is_the_array(read):
    got = read(f"{SCIENCE}?format=npy")
    np.testing.assert_array_equal(np.load(BytesIO(got.data)), source(seed=0))


def test_a_png_has_the_requested_size(read):
    got = read(f"{SCIENCE}?format=png")
    assert got.headers["content-type"] == "image/png"
    assert Image.open(BytesIO(got.data)).size == (63, 63)
    large = read(f"{SCIENCE}?format=png&size=126&stretch=log&min=1&max=99")
    assert Image.open(BytesIO(large.data)).size == (126, 126)
    assert large.headers["etag"] != got.headers["etag"]


def test_a_png_has_north_up_unless_the_surveys_view_is_asked_for(read):
    north, survey = (
        np.asarray(Image.open(BytesIO(read(f"{SCIENCE}?format=png{orient}").data)))
        for orient in ("", "&orient=survey")
    )
    np.testing.assert_array_equal(survey, greys(source(seed=0)))
    np.testing.assert_array_equal(north, survey[::-1])  # of ZTF: see docs/adr/0032-north-up.md


def shown(read, path: str) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(read(path).data)))


def test_the_cutouts_of_an_alert_can_have_one_stretch(read):
    own, shared = (
        shown(read, f"{SCIENCE.replace('science', 'difference')}?format=png{query}")
        for query in ("", "&limits=science")
    )
    image = source(seed=2)
    np.testing.assert_array_equal(own, greys(image)[::-1])
    within = limits(source(seed=0))
    np.testing.assert_array_equal(shared, greys(image, within=within)[::-1])


def test_a_png_between_two_values(read):
    got = shown(read, f"{SCIENCE}?format=png&stretch=linear&vmin=-20&vmax=80.5")
    np.testing.assert_array_equal(
        got, greys(source(seed=0), Stretch.LINEAR, within=(-20, 80.5))[::-1]
    )
    assert read(f"{SCIENCE}?format=png&vmin=2&vmax=1").json()["parameter"] == "vmin"


def test_any_hdu_can_be_seen(read):
    path = f"/v1/alerts/{LSST_ALERT}/cutouts/science"
    variance = np.load(BytesIO(read(f"{path}?format=npy&hdu=1").data))
    np.testing.assert_array_equal(variance, np.abs(source(30, seed=0)))
    assert shown(read, f"{path}?format=png&hdu=2&size=50").shape == (50, 50)
    got = read(f"{path}?format=png&hdu=3").json()
    assert (got["parameter"], got["status"]) == ("hdu", 400)


def test_an_alert_lists_its_cutouts(read):
    got = read(f"/v1/alerts/{LSST_ALERT}")
    assert got.status == 200
    alert = got.json()
    assert alert["alert_id"] == str(LSST_ALERT)
    assert alert["object_id"] == LSST_OBJECT
    assert alert["survey"] == "lsst"
    assert alert["mjd"] == 60800.5
    assert list(alert["cutouts"]) == ["science", "template", "difference"]
    assert alert["cutouts"]["template"] is None
    science = alert["cutouts"]["science"]
    assert science["bytes"] == len(read(science["href"]).data)
    assert read(alert["lightcurve"]).json()["object_id"] == LSST_OBJECT


def test_an_alert_of_both_surveys_needs_the_survey(read):
    path = f"/v1/alerts/{BOTH}/cutouts/science"
    got = read(path)
    assert got.status == 400
    assert got.json()["type"] == "urn:stampede:problem:ambiguous-alert"
    assert got.json()["parameter"] == "survey"
    assert read(f"{path}?survey=lsst").status == 200
    assert read(f"/v1/alerts/{BOTH}?survey=ztf").json()["object_id"] == "ZTF00both"


def test_a_client_that_has_the_cutout_gets_304(read):
    tag = read(SCIENCE).headers["etag"]
    for known in (tag, f'"other", W/{tag}', "*"):
        got = read(SCIENCE, headers={"If-None-Match": known})
        assert (got.status, got.data) == (304, b"")
        assert got.headers["etag"] == tag
        assert "immutable" in got.headers["cache-control"]
    assert read(SCIENCE, headers={"If-None-Match": '"other"'}).status == 200


def test_every_representation_has_its_own_tag(read):
    forms = ("", "?format=npy", "?format=png", "?format=png&size=99", "?hdus=first")
    tags = [read(SCIENCE + form).headers["etag"] for form in forms]
    tags.append(read(SCIENCE, headers={"Accept-Encoding": "gzip"}).headers["etag"])
    tags.append(read(SCIENCE.replace("science", "template")).headers["etag"])
    assert len(set(tags)) == len(tags)


RANGES = {
    "bytes=0-99": (206, slice(0, 100)),
    "bytes=100-": (206, slice(100, None)),
    "bytes=-50": (206, slice(-50, None)),
    "bytes=0-99999999": (206, slice(None)),
    "bytes=5-4": (200, slice(None)),
    "bytes=0-1,5-6": (200, slice(None)),
    "pixels=0-1": (200, slice(None)),
    "bytes=99999999-": (416, slice(0, 0)),
    "bytes=-0": (416, slice(0, 0)),
}


@pytest.mark.parametrize(("wanted", "expected"), RANGES.items(), ids=RANGES)
def test_a_range_of_a_cutout(read, wanted, expected):
    complete = read(SCIENCE).data
    status, part = expected
    got = read(SCIENCE, headers={"Range": wanted})
    assert (got.status, got.data) == (status, complete[part])
    if status == 206:
        start, stop, _ = part.indices(len(complete))
        assert got.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(complete)}"
    if status == 416:
        assert got.headers["content-range"] == f"bytes */{len(complete)}"


def test_a_range_of_another_version_is_not_sent(read):
    tag = read(SCIENCE).headers["etag"]
    part = {"Range": "bytes=0-9"}
    assert read(SCIENCE, headers={**part, "If-Range": tag}).status == 206
    assert read(SCIENCE, headers={**part, "If-Range": '"old"'}).status == 200


@pytest.mark.parametrize("form", ["", "?format=png", "?hdus=first"])
@pytest.mark.parametrize("coding", ["gzip", "identity"])
def test_head_is_get_without_a_body(read, form, coding):
    headers = {"Accept-Encoding": coding}
    got, head = read(SCIENCE + form, headers=headers), read(SCIENCE + form, "HEAD", headers=headers)
    assert (head.status, head.data) == (200, b"")
    dated = ("date",)
    assert {k: v for k, v in head.headers.items() if k not in dated} == {
        k: v for k, v in got.headers.items() if k not in dated
    }


PROBLEMS = {
    "/v1/alerts/1": (404, "unknown-alert", None),
    "/v1/alerts/1/cutouts/science": (404, "unknown-alert", None),
    f"/v1/alerts/{ZTF_ALERT}?survey=lsst": (404, "unknown-alert", None),
    f"/v1/alerts/{LSST_ALERT}/cutouts/template": (404, "no-such-cutout", None),
    "/v1/alerts/abc": (400, "bad-parameter", "alert_id"),
    "/v1/alerts/0": (400, "bad-parameter", "alert_id"),
    "/v1/alerts/-5/cutouts/science": (400, "bad-parameter", "alert_id"),
    "/v1/alerts/9223372036854775808": (400, "bad-parameter", "alert_id"),
    "/v1/alerts/1642404680815015001.0": (400, "bad-parameter", "alert_id"),
    "/v1/alerts/%D9%A1%D9%A2": (400, "bad-parameter", "alert_id"),
    f"/v1/alerts/{ZTF_ALERT}/cutouts/selfie": (400, "bad-parameter", "kind"),
    f"{SCIENCE}?format=jpeg": (400, "bad-parameter", "format"),
    f"{SCIENCE}?survey=sdss": (400, "bad-parameter", "survey"),
    f"{SCIENCE}?hdus=2": (400, "bad-parameter", "hdus"),
    f"{SCIENCE}?format=png&stretch=sinh": (400, "bad-parameter", "stretch"),
    f"{SCIENCE}?format=png&min=-1": (400, "bad-parameter", "min"),
    f"{SCIENCE}?format=png&min=nan": (400, "bad-parameter", "min"),
    f"{SCIENCE}?format=png&max=101": (400, "bad-parameter", "max"),
    f"{SCIENCE}?format=png&min=60&max=50": (400, "bad-parameter", "min"),
    f"{SCIENCE}?format=png&size=0": (400, "bad-parameter", "size"),
    f"{SCIENCE}?format=png&size=5000": (400, "bad-parameter", "size"),
    "/v1/alerts/666/cutouts/science?format=png": (422, "bad-image", None),
    "/v1/alerts/666/cutouts/science?format=npy": (422, "bad-image", None),
    "/v1/alerts/666/cutouts/science?hdus=first": (422, "bad-image", None),
}


@pytest.mark.parametrize(("path", "expected"), PROBLEMS.items(), ids=PROBLEMS)
def test_bad_requests_are_problems(read, path, expected):
    got = read(path)
    status, name, parameter = expected
    assert got.status == status
    assert got.headers["content-type"] == "application/problem+json"
    assert got.headers["cache-control"] == "no-store"
    problem = json.loads(got.data)
    assert problem["type"] == f"urn:stampede:problem:{name}"
    assert problem["status"] == status
    assert problem.get("parameter") == parameter
    assert problem["detail"]


def test_a_damaged_cutout_is_served_as_stored(read):
    assert read("/v1/alerts/666/cutouts/science").data == b"not FITS" * 999


def test_a_browser_gets_a_placeholder_for_an_image_that_cannot_be_made(read):
    browser = {"Accept": "image/avif,image/webp,image/apng,image/*,*/*;q=0.8"}
    got = read("/v1/alerts/666/cutouts/science?format=png", headers=browser)
    assert got.status == 422
    assert got.headers["content-type"] == "image/png"
    assert Image.open(BytesIO(got.data)).size == (63, 63)


def test_unknown_routes_and_methods_are_problems(read):
    for got, status in ((read("/v2"), 404), (read(SCIENCE, "PUT"), 405)):
        assert got.status == status
        assert got.headers["content-type"] == "application/problem+json"
        assert got.json()["status"] == status
    assert set(got.headers["allow"].split(", ")) == {"GET", "HEAD"}


def test_pages_of_other_origins_may_read(read):
    origin = {"Origin": "https://notebook.example"}
    got = read(SCIENCE, headers=origin)
    assert got.headers["access-control-allow-origin"] == "*"
    assert "ETag" in got.headers["access-control-expose-headers"]
    preflight = {**origin, "Access-Control-Request-Method": "POST"}
    response = read("/v1/cutouts", "OPTIONS", headers=preflight)
    assert response.status == 204
    assert "POST" in response.headers["access-control-allow-methods"]
    assert response.headers["access-control-allow-headers"] == "Authorization, *"
