import contextlib
import gzip
import time
import tracemalloc
from io import BytesIO

import numpy as np
import pytest
from astropy.io import fits as astropy_fits
from hypothesis import given
from hypothesis import strategies as st

from stampede.images.fits import image, trim, unpack
from stampede.images.hdu import BLOCK, BadImage
from stampede.images.npy import npy
from stampede.images.png import png
from stampede.images.stretch import limits
from tests.support.alerts.fits_files import fits_file, fits_of, lsst, source, ztf

PIXELS = source(size=30)
PLAIN = fits_file(astropy_fits.PrimaryHDU(PIXELS))
END = b"END".ljust(80)


@pytest.mark.parametrize("make", [ztf, lsst], ids=["ztf", "lsst"])
def test_pixels_of_a_survey_come_back(make):
    got = image(make(PIXELS))
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, PIXELS)


@pytest.mark.parametrize("dtype", ["u1", "i2", "i4", "i8", "f4", "f8"])
def test_every_pixel_type_is_read_as_astropy_reads_it(dtype):
    pixels = np.arange(12, dtype=dtype).reshape(3, 4)
    data = fits_file(astropy_fits.PrimaryHDU(pixels))
    np.testing.assert_array_equal(image(data), astropy_fits.getdata(BytesIO(data)))


def test_scaled_integers_with_blanks_are_read_as_astropy_reads_them():
    hdu = astropy_fits.PrimaryHDU(np.array([[1, 2], [3, -99]], np.int16))
    hdu.header.update(BSCALE=0.5, BZERO=100.0, BLANK=-99)
    data = fits_file(hdu)
    want = astropy_fits.getdata(BytesIO(data))
    assert np.isnan(want[1, 1])
    np.testing.assert_array_equal(image(data), want)


def test_nan_stays_nan():
    pixels = PIXELS.copy()
    pixels[3, 4] = np.nan
    np.testing.assert_array_equal(image(ztf(pixels)), pixels)


@pytest.mark.parametrize(
    "empty_first",
    [astropy_fits.PrimaryHDU(), astropy_fits.PrimaryHDU(np.zeros(7, np.float32))],
    ids=["no data", "a line"],
)
def test_the_first_image_may_be_an_extension(empty_first):
    table = astropy_fits.BinTableHDU.from_columns(
        [astropy_fits.Column("a", "E", array=np.arange(3.0))]
    )
    data = fits_file(empty_first, table, astropy_fits.ImageHDU(PIXELS))
    np.testing.assert_array_equal(image(data), PIXELS)
    assert_strict(trim(data), PIXELS)


@pytest.mark.parametrize("make", [ztf, lsst], ids=["ztf", "lsst"])
def test_a_trimmed_file_is_strictly_valid_and_has_one_hdu(make):
    assert_strict(trim(make(PIXELS)), PIXELS)


def assert_strict(data: bytes, pixels: np.ndarray) -> None:
    assert len(data) % BLOCK == 0
    with astropy_fits.open(BytesIO(data)) as hdus:
        assert len(hdus) == 1
        hdus.verify("exception")
        np.testing.assert_array_equal(hdus[0].data, pixels)


NOT_IMAGES = {
    "empty": (b"", "no two-dimensional image"),
    "not FITS": (b"<html>" * 1000, "header does not end|not a FITS file"),
    "zeros": (bytes(BLOCK), "header does not end"),
    "header only": (PLAIN[:BLOCK], "ends at byte 2880"),
    "cut short": (PLAIN[: BLOCK + 100], "ends at byte"),
    "no image": (fits_file(astropy_fits.PrimaryHDU()), "no two-dimensional image"),
    "gzip of nothing": (gzip.compress(b""), "no two-dimensional image"),
    "gzip cut short": (ztf(PIXELS)[:-20], "cut short"),
    "gzip damaged": (ztf(PIXELS)[:200] + b"\xff" * 300, "damaged|cut short"),
    "huge axis": (
        PLAIN.replace(b"NAXIS1  =                   30", b"NAXIS1  =            999999999"),
        "ends at byte",
    ),
    "negative axis": (
        PLAIN.replace(b"NAXIS1  =                   30", b"NAXIS1  =                  -30"),
        "NAXIS1 is not a count",
    ),
    "axis missing": (PLAIN.replace(b"NAXIS1  =", b"NAXIZ1  ="), "NAXIS1 is not a count"),
    "no type": (
        PLAIN.replace(b"                  -32", b"                  -33"),
        "BITPIX is '-33'",
    ),
    "not a number": (
        PLAIN.replace(b"EXTEND  =                    T", b"BSCALE  =                    T"),
        "BSCALE is not a number",
    ),
}


@pytest.mark.parametrize(("data", "message"), NOT_IMAGES.values(), ids=NOT_IMAGES)
def test_what_is_not_an_image_is_named(data, message):
    with pytest.raises(BadImage, match=message):
        image(data)


def test_a_gzip_bomb_is_not_unpacked():
    with pytest.raises(BadImage, match="more than 1,000 bytes"):
        unpack(gzip.compress(bytes(1_000_000)), limit=1000)


@given(st.integers(0, BLOCK + 400), st.binary(min_size=1, max_size=40))
def test_damage_anywhere_gives_an_array_or_bad_image(at, damage):
    data = PLAIN[:at] + damage + PLAIN[at + len(damage) :]
    with contextlib.suppress(BadImage):
        assert image(data).ndim == 2


def test_fill_values_are_no_pixels():
    """ZTF writes the lowest float32 for a pixel without a value."""
    pixels = PIXELS.copy()
    expected = PIXELS.copy()
    for at, value in (((3, 4), -3.4028235e38), ((5, 6), -3.4e38), ((7, 8), 9e30)):
        pixels[at], expected[at] = value, np.nan
    np.testing.assert_array_equal(image(ztf(pixels)), expected)
    assert limits(image(ztf(pixels))) == limits(expected)
    assert png(image(ztf(pixels))) == png(expected)
    np.testing.assert_array_equal(np.load(BytesIO(npy(image(ztf(pixels))))), expected)


BOMBS = {
    "pixels": fits_of(1025, 1025, 8),
    "wide": fits_of(1, 2_000_000, 8),
    "no groups": PLAIN.replace(END, b"GCOUNT  =                    0".ljust(80) + END),
    "heap": PLAIN.replace(END, b"PCOUNT  =            999999999".ljust(80) + END),
    "negative heap": PLAIN.replace(END, b"PCOUNT  =                   -1".ljust(80) + END),
    "999 axes": PLAIN.replace(b"NAXIS   =                    2", b"NAXIS   =                  999"),
    "many axes": PLAIN.replace(
        b"NAXIS   =                    2", b"NAXIS   =            999999999"
    ),
    "a file of headers": fits_file(astropy_fits.PrimaryHDU()) * 5000,
    "gzipped pixels": gzip.compress(fits_of(15_000, 1_000, 8)),
    "gzip bomb": gzip.compress(bytes(100_000_000)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_in_bounded_time_and_memory(name):
    data = BOMBS[name]
    begin = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(BadImage):
            image(data)
        assert tracemalloc.get_traced_memory()[1] < 50e6
    finally:
        tracemalloc.stop()
    assert time.process_time() - begin < 5


def test_the_largest_image_that_is_drawn_takes_bounded_memory():
    data = fits_of(1024, 1024, 8)
    tracemalloc.start()
    try:
        assert png(image(data))[:4] == b"\x89PNG"
        assert tracemalloc.get_traced_memory()[1] < 100e6
    finally:
        tracemalloc.stop()
