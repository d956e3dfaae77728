"""Stamps that no survey of the samples sends: all that was sent is served, or it is refused."""

import gzip
from collections.abc import Iterator
from io import BytesIO

import numpy as np
import pytest
from astropy.io import fits
from PIL import Image

from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from tests.support.alerts.odd_stamps import (
    BROKEN,
    EXTREME,
    IDS,
    INFINITE,
    PIXELS,
    PLAIN,
    PLANES,
    STAMPS,
    TILED,
    WHOLE,
    store_stamps,
)
from tests.support.read.read_service import Reader, serving


@pytest.fixture(scope="module")
def odd() -> Iterator[Reader]:
    objects = MemoryObjects()
    store_stamps(objects)
    yield from serving(make_app(Settings(), objects))


def path(name: str) -> str:
    return f"/v1/alerts/{IDS[name]}/cutouts/science"


@pytest.mark.parametrize("name", WHOLE)
def test_all_members_of_a_gzip_file_are_served(odd: Reader, name: str) -> None:
    got = odd(path(name), headers={"Accept-Encoding": "identity"})
    assert (got.status, got.headers["content-length"]) == (200, str(len(PLAIN)))
    assert got.data == PLAIN
    assert odd(path(name), headers={"Accept-Encoding": "gzip"}).data == WHOLE[name]
    np.testing.assert_array_equal(np.load(BytesIO(odd(f"{path(name)}?format=npy").data)), PIXELS)
    with fits.open(BytesIO(odd(f"{path(name)}?hdus=first").data)) as hdus:
        np.testing.assert_array_equal(hdus[0].data, PIXELS)


@pytest.mark.parametrize("name", BROKEN)
def test_a_stamp_with_bytes_behind_its_end_is_served_as_sent_or_refused(
    odd: Reader, name: str
) -> None:
    for view in ("?format=png", "?format=npy", "?hdus=first"):
        got = odd(path(name) + view)
        assert (got.status, got.json()["type"]) == (422, "urn:stampede:problem:bad-image")
    plain = odd(path(name), headers={"Accept-Encoding": "identity"})
    if "gzip" in name:
        assert plain.status == 422
        assert odd(path(name), headers={"Accept-Encoding": "gzip"}).data == BROKEN[name]
    else:
        stamp = BROKEN[name]
        assert plain.data == (gzip.decompress(stamp) if stamp.startswith(b"\x1f\x8b") else stamp)


@pytest.mark.parametrize("name", PLANES)
def test_an_image_with_further_axes_of_one_pixel_is_shown(odd: Reader, name: str) -> None:
    np.testing.assert_array_equal(np.load(BytesIO(odd(f"{path(name)}?format=npy").data)), PIXELS)
    assert Image.open(BytesIO(odd(f"{path(name)}?format=png").data)).size == (63, 63)
    with fits.open(BytesIO(odd(f"{path(name)}?hdus=first").data)) as hdus:
        np.testing.assert_array_equal(np.squeeze(hdus[0].data), PIXELS)
    if "extension" in name:  # the page lists HDUs if there are several
        assert "63 x 63" in odd(f"/alerts/{IDS[name]}").data.decode()


@pytest.mark.parametrize("name", INFINITE)
def test_infinities_are_kept(odd: Reader, name: str) -> None:
    """And what a survey writes for a pixel without a value is NaN."""
    got = np.load(BytesIO(odd(f"{path(name)}?format=npy").data))
    np.testing.assert_array_equal(got, EXTREME)
    for stretch in ("asinh", "linear", "log", "zscale"):
        png = odd(f"{path(name)}?format=png&orient=survey&stretch={stretch}")
        picture = np.asarray(Image.open(BytesIO(png.data)))[::-1]
        assert picture[3, 4:7].tolist() == [255, 0, 64]


@pytest.mark.parametrize("name", TILED)
def test_a_tile_compressed_image_is_shown(odd: Reader, name: str) -> None:
    with fits.open(BytesIO(TILED[name])) as hdus:
        expected = hdus[1].data
    for hdu in ("", "&hdu=1"):
        got = odd(f"{path(name)}?format=npy{hdu}")
        np.testing.assert_array_equal(np.load(BytesIO(got.data)), expected)
    assert Image.open(BytesIO(odd(f"{path(name)}?format=png").data)).size == (63, 63)
    assert odd(f"{path(name)}?hdus=first").status == 422
    assert odd(path(name)).data == TILED[name]
    assert "63 x 63" in odd(f"/alerts/{IDS[name]}").data.decode()


def test_the_page_of_each_is_shown(odd: Reader) -> None:
    assert {odd(f"/alerts/{IDS[name]}").status for name in STAMPS} == {200}
