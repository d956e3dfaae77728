import numpy as np
import pytest
from astropy.visualization import (
    AsinhStretch,
    LinearStretch,
    LogStretch,
    ManualInterval,
    PercentileInterval,
    ZScaleInterval,
)
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from stampede.images.stretch import Stretch, limits, stretch
from tests.support.alerts.fits_files import source

ORACLE = {
    Stretch.ASINH: AsinhStretch(0.1),
    Stretch.LINEAR: LinearStretch(),
    Stretch.LOG: LogStretch(1000),
    Stretch.ZSCALE: LinearStretch(),
}


@pytest.mark.parametrize("kind", Stretch)
def test_a_stretch_between_percentiles_is_astropys(kind):
    image = source()
    want = (ORACLE[kind] + PercentileInterval(98))(image.astype(float))
    np.testing.assert_allclose(stretch(image, kind, 1, 99), want, atol=1e-12)


@given(
    arrays.arrays(np.float32, st.integers(1, 30), elements=st.floats(-1e6, 1e6, width=32)),
    st.floats(0, 100),
    st.floats(0, 100),
)
def test_limits_asked_for_are_numpys_percentiles(image, low, high):
    want = np.percentile(image.astype(float), [low, high])
    assert limits(image, low, high) == pytest.approx(tuple(want), rel=1e-9, abs=1e-6)


def test_the_limits_of_the_noise_are_as_documented():
    image = source(peak=5000).astype(float)
    sigma = 1.4826 * np.median(np.abs(image - np.median(image)))
    assert limits(image) == pytest.approx(
        (np.median(image) - 2 * sigma, np.percentile(image, 99.7))
    )
    want = (AsinhStretch(0.1) + ManualInterval(*limits(image)))(image)
    np.testing.assert_allclose(stretch(image), want, atol=1e-12)


@pytest.mark.parametrize("peak", [0, 100, 5000])
@pytest.mark.parametrize("size", [3, 30, 63])
def test_zscale_is_astropys(peak, size):
    image = source(size, peak)
    want = ZScaleInterval(n_samples=image.size).get_limits(image)
    assert limits(image, kind=Stretch.ZSCALE) == pytest.approx(want, rel=1e-6)


def test_zscale_of_a_constant_image_is_its_value():
    assert limits(np.full((9, 9), 7.0), kind=Stretch.ZSCALE) == (7, 7)


@pytest.mark.parametrize("peak", [100, 1000, 100_000])
def test_the_source_is_seen_and_the_sky_is_dark(peak):
    bright = stretch(source(peak=peak))
    assert np.median(bright) < 0.35
    assert bright.max() > 0.5
    assert np.unravel_index(bright.argmax(), bright.shape) == pytest.approx((44, 25), abs=2)


def test_a_negative_source_is_black_on_grey():
    bright = stretch(source(peak=-500))
    assert bright[44, 25] == 0
    assert np.median(bright) > 0.1


@given(
    arrays.arrays(
        np.float32, arrays.array_shapes(min_dims=2, max_dims=2), elements=st.floats(width=32)
    ),
    st.sampled_from(Stretch),
)
def test_every_pixel_with_a_value_is_between_0_and_1(image, kind):
    bright = stretch(image, kind)
    assert bright.shape == image.shape
    if np.isfinite(image).any():
        np.testing.assert_array_equal(np.isnan(bright), np.isnan(image))
    shown = bright[~np.isnan(bright)]
    assert ((shown >= 0) & (shown <= 1)).all()


def test_an_image_without_values_has_no_brightness():
    assert limits(np.full((2, 2), np.nan)) == (0, 0)
    assert np.isnan(stretch(np.full((2, 2), np.nan))).all()


@given(
    arrays.arrays(
        np.float32,
        st.integers(1, 40),
        elements=st.floats(-1e6, 1e6, width=32) | st.sampled_from([np.nan, np.inf, -np.inf]),
    )
)
def test_the_noise_is_that_of_numpys_medians(image):
    finite = image[np.isfinite(image)].astype(float)
    if finite.size:
        median = np.median(finite)
        sigma = 1.4826 * np.median(np.abs(finite - median))
        assert limits(image)[0] == pytest.approx(median - 2 * sigma, rel=1e-12, abs=1e-9)
    else:
        assert limits(image) == (0, 0)
