"""Tile-compressed images have the pixels that astropy reads."""

from contextlib import suppress
from io import BytesIO

import numpy as np
import pytest
from astropy.io import fits
from hypothesis import given
from hypothesis import strategies as st

from stampede.images.fits import image, trim
from stampede.images.hdu import BadImage
from tests.support.alerts.fits_files import fits_file, source

RNG = np.random.default_rng(1)
PIXELS = source()


def compressed(pixels: np.ndarray, **options: object) -> bytes:
    return fits_file(fits.PrimaryHDU(), fits.CompImageHDU(pixels, **options))


def assert_as_astropy(data: bytes) -> None:
    with fits.open(BytesIO(data)) as hdus:
        want = np.squeeze(hdus[1].data)
    np.testing.assert_array_equal(image(data), want.astype(image(data).dtype))


@pytest.mark.parametrize("how", ["RICE_1", "GZIP_1", "GZIP_2", "NOCOMPRESS"])
@pytest.mark.parametrize("tile", [None, (20, 30), (63, 63), (1, 10)])
@pytest.mark.parametrize("kind", ["u1", "i2", "i4", "u2", "f4", "f8"])
def test_each_algorithm_type_and_tiling(how: str, tile: tuple | None, kind: str) -> None:
    if how == "NOCOMPRESS" and kind[0] == "f":
        return  # astropy cannot write it
    pixels = (PIXELS * 3).clip(0, 250).astype(kind) if kind[0] == "u" else PIXELS.astype(kind)
    assert_as_astropy(compressed(pixels, compression_type=how, tile_shape=tile))


@pytest.mark.parametrize("method", [-1, 1, 2])
@pytest.mark.parametrize("seed", [1, 77, 9999])
def test_quantised_floats_with_each_dithering(method: int, seed: int) -> None:
    pixels = PIXELS.copy()
    pixels[5, 5:9] = 0
    pixels[7, 3] = np.nan
    assert_as_astropy(
        compressed(pixels, compression_type="RICE_1", quantize_method=method, dither_seed=seed)
    )
    large = RNG.normal(0, 10, (150, 200)).astype(np.float32)
    options = {"quantize_method": method, "dither_seed": seed, "tile_shape": (150, 200)}
    assert_as_astropy(compressed(large, **options))


@given(st.data())
def test_any_whole_numbers(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(["i2", "i4", "u1"]))
    info = np.iinfo(kind)
    numbers = st.integers(int(info.min), int(info.max)) | st.integers(0, 3)
    values = data.draw(st.lists(numbers, min_size=4, max_size=90))
    assert_as_astropy(compressed(np.array([values, values[::-1]], kind), compression_type="RICE_1"))


@given(st.data())
def test_damage_gives_an_array_or_bad_image(data: st.DataObject) -> None:
    whole = compressed(PIXELS[:20, :20], compression_type="RICE_1")
    at = data.draw(st.integers(2880, len(whole) - 1))
    damage = data.draw(st.binary(min_size=1, max_size=20))
    with suppress(BadImage):
        assert image(whole[:at] + damage + whole[at + len(damage) :]).ndim == 2


def test_what_is_not_read_is_named() -> None:
    for how in ("HCOMPRESS_1", "PLIO_1"):
        pixels = np.abs(PIXELS).astype(np.int16)
        with pytest.raises(BadImage, match=f"compressed by '{how}' are not read"):
            image(compressed(pixels, compression_type=how))
    with pytest.raises(BadImage, match="262,144 pixels, 65,536 are read"):
        image(compressed(np.zeros((512, 512), np.int16)))
    with pytest.raises(BadImage, match="tile-compressed: take the whole file"):
        trim(compressed(PIXELS))


def test_tiles_that_share_their_bytes_are_refused() -> None:
    """Of one pixel each, all with the whole heap: one long row of zeros."""
    numbers = RNG.integers(0, 1 << 30, (63, 63), np.int32)
    data = bytearray(compressed(numbers, compression_type="RICE_1", tile_shape=(1, 1)))
    with fits.open(BytesIO(bytes(data))) as hdus:
        header, start = hdus[1]._bintable.header, hdus[1].fileinfo()["datLoc"]
        rows, width, size = header["NAXIS2"], header["NAXIS1"], header["PCOUNT"]
    for row in range(rows):
        at = start + row * width
        data[at : at + 8] = size.to_bytes(4, "big") + bytes(4)
    heap = start + rows * width
    data[heap : heap + size] = bytes(4) + b"\x08" + bytes(size - 6) + b"\x01"
    with pytest.raises(BadImage, match="share"):
        image(bytes(data))
