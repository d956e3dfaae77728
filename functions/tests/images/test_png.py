from io import BytesIO

import numpy as np
from hypothesis import given
from hypothesis.extra import numpy as arrays
from PIL import Image

from stampede.images.npy import npy
from stampede.images.png import BLANK, encode, placeholder, png
from stampede.images.stretch import Stretch
from tests.support.alerts.fits_files import source


@given(arrays.arrays(np.uint8, arrays.array_shapes(min_dims=2, max_dims=2)))
def test_what_is_encoded_is_what_a_viewer_shows(picture):
    image = Image.open(BytesIO(encode(picture)))
    assert image.mode == "L"
    np.testing.assert_array_equal(np.asarray(image), picture)


def opened(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(data)))


def test_an_image_has_its_first_row_at_the_bottom():
    image = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 4.0]])
    picture = opened(png(image, Stretch.LINEAR, 0, 100))
    np.testing.assert_array_equal(picture, [[255, 255], [128, 191], [0, 64]])


def test_pixels_without_a_value_are_grey():
    image = source()
    image[0, 0] = np.nan
    assert opened(png(image))[-1, 0] == BLANK
    assert (opened(png(np.full((4, 4), np.nan))) == BLANK).all()


def test_a_scaled_image_keeps_flat_pixels():
    image = source(size=30)
    small, large = opened(png(image)), opened(png(image, size=90))
    np.testing.assert_array_equal(large, small.repeat(3, 0).repeat(3, 1))


def test_size_is_the_longer_side():
    assert opened(png(np.zeros((10, 40)), size=80)).shape == (20, 80)
    assert opened(png(np.zeros((1, 400)), size=80)).shape == (1, 80)


def test_a_placeholder_is_a_crossed_square():
    picture = opened(placeholder(21))
    assert picture.shape == (21, 21)
    assert picture[10, 10] > picture[10, 5] == BLANK


def test_npy_is_what_numpy_loads():
    image = source()
    image[1, 1] = np.nan
    np.testing.assert_array_equal(np.load(BytesIO(npy(image)), allow_pickle=False), image)
