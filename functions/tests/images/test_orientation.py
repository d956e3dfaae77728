"""North is up and east is left: in made images, and in real ones of both surveys.

docs/measurements/0032-north-up.md says how the directions of each survey's images were found.
"""

import gzip
import io
import math

import numpy as np
import pytest
from PIL import Image

from stampede.alerts import surveys
from stampede.alerts.columns import KINDS
from stampede.alerts.surveys.survey import SkyAxes
from stampede.images import fits
from stampede.images.orientation import (
    NO_TURN,
    Turn,
    pixel_scale,
    sky_axes,
    turn_of,
)
from stampede.images.png import png
from stampede.images.thumbnail import thumbnail
from stampede_local.demo.oracle import read_record
from stampede_simulator.simulator import Mix, Simulator
from tests.support.alerts.avro_reading import records
from tests.support.alerts.fits_files import fits_of, lsst, with_sky_axes
from tests.support.alerts.made_alerts import REAL

RUBIN_PIXEL, ZTF_PIXEL = 0.2, 1.012  # arcsec
needs_real = pytest.mark.skipif(not REAL.exists(), reason="no real alerts beside the repository")


def axes_of(angle: float, mirrored: bool = False, pixel: float = RUBIN_PIXEL) -> SkyAxes:
    """Axes with y at a position angle, and x to the west of it; to the east if mirrored."""
    scale = pixel / 3600
    sin, cos = scale * math.sin(math.radians(angle)), scale * math.cos(math.radians(angle))
    side = -1 if mirrored else 1
    return SkyAxes(-side * cos, sin, side * sin, cos)


def star(axes: SkyAxes, east: float, north: float, size: int) -> np.ndarray:
    """An image of a star that is so many arcseconds to the east and north of the centre."""
    matrix = np.array(axes).reshape(2, 2) * 3600
    x, y = np.linalg.solve(matrix, (east, north)) + (size - 1) / 2
    rows, columns = np.mgrid[:size, :size]
    return np.exp(-((columns - x) ** 2 + (rows - y) ** 2) / 8).astype(np.float32)


def brightest(picture: np.ndarray) -> tuple[float, float]:
    """Where the light of a picture is: right of and above its centre, in its longer sides."""
    light = picture.astype(float).clip(100, None) - 100  # brighter than pixels without a value
    rows, columns = np.mgrid[: picture.shape[0], : picture.shape[1]]
    column, row = ((light * at).sum() / light.sum() for at in (columns, rows))
    height, width = picture.shape
    return (column - (width - 1) / 2) / width, ((height - 1) / 2 - row) / height


def opened(data: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(data)))


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("angle", [0, 30, 63.8, 90, 135, 180, 205, 270, 341])
@pytest.mark.parametrize("size", [30, 63, 102])
def test_north_is_up_and_east_is_left(angle: float, mirrored: bool, size: int) -> None:
    axes = axes_of(angle, mirrored)
    distance = size / 4 * RUBIN_PIXEL
    files = [
        with_sky_axes(lsst(star(axes, east, north, size)), axes)
        for east, north in ((0, distance), (distance, 0), (0, -distance))
    ]
    picture = opened(thumbnail(files, "lsst").png)
    for number, (right, up) in enumerate(((0, 1 / 4), (-1 / 4, 0), (0, -1 / 4))):
        panel = picture[:, number * 65 :][:, :63]
        assert brightest(panel) == pytest.approx((right, up), abs=0.03)
        image, hdu = fits.first_image(files[number])
        turn = turn_of(sky_axes(hdu, "lsst"))
        shown = opened(png(image, turn=turn))
        side = max(shown.shape) / (1 if turn.degrees % 90 == 0 else 4)
        want = right * size / side, up * size / side
        assert brightest(shown) == pytest.approx(want, abs=0.03)


def test_a_whole_image_is_shown_however_it_is_turned() -> None:
    image = np.arange(600.0).reshape(20, 30)
    for degrees in (0, 45, 90, 200):
        shown = opened(png(image, size=400, low=0, high=100, turn=Turn(False, degrees)))
        assert max(shown.shape) == 400
        assert len(np.unique(shown)) > 230
    assert opened(png(image, turn=Turn(False, 90))).shape == (30, 20)
    assert opened(png(image, turn=Turn(True, 180)))[0, 0] == opened(png(image))[-1, 0]


def test_a_file_that_does_not_say_where_north_is_is_not_turned() -> None:
    image, hdu = fits.first_image(fits_of(5, 5, -32))
    assert image.shape == (5, 5)
    assert turn_of(sky_axes(hdu, "lsst")) == turn_of(sky_axes(hdu)) == NO_TURN
    singular = with_sky_axes(fits_of(5, 5, -32), SkyAxes(1e-4, 1e-4, 1e-4, 1e-4))
    assert sky_axes(fits.first_image(singular)[1], "lsst") is None


@pytest.mark.parametrize("survey", ["lsst", "ztf"])
def test_simulated_alerts_lie_as_real_ones(survey: str) -> None:
    share = 1.0 if survey == "lsst" else 0.0
    alert = next(iter(Simulator(7, mix=Mix(lsst_share=share, null_cutouts=0)).alerts(1)))
    for kind in KINDS:
        _, hdu = fits.first_image(alert.fits[kind])
        axes = sky_axes(hdu, survey)
        if survey == "ztf":
            assert axes == surveys.named("ztf").SKY_AXES
        else:
            check_position_angle(hdu, axes)


def check_position_angle(hdu, axes: SkyAxes) -> None:
    """The matrix of a Rubin header says the same as ROTPA: y points there, x is west of it."""
    assert pixel_scale(axes) == pytest.approx(RUBIN_PIXEL, rel=0.01)
    turn = turn_of(axes)
    assert not turn.mirrored
    assert (turn.degrees - hdu.number(b"ROTPA", math.nan) + 180) % 360 - 180 == pytest.approx(
        0, abs=1
    )


@needs_real
def test_rubins_headers_agree_with_the_positions_of_their_alerts() -> None:
    """Five alerts of one detector: from their pixels and positions follows the header's matrix."""
    pixels, sky, headers = [], [], []
    for path in REAL.glob("lsst/*.avro.gz"):
        _, alert = read_record(gzip.decompress(path.read_bytes()))
        source = alert["diaSource"]
        pixels.append((source["x"], source["y"]))
        sky.append((source["ra"], source["dec"]))
        headers.append(fits.first_image(alert["cutoutScience"])[1])
    offsets = np.array(sky) - np.mean(sky, 0)
    offsets[:, 0] *= np.cos(np.radians(np.mean(sky, 0)[1]))
    matrix, *_ = np.linalg.lstsq(pixels - np.mean(pixels, 0), offsets, rcond=None)
    for hdu in headers:
        axes = sky_axes(hdu, "lsst")
        np.testing.assert_allclose(np.array(axes).reshape(2, 2), matrix.T, rtol=0.02)
        check_position_angle(hdu, axes)


@needs_real
def test_rubins_headers_agree_with_the_angle_of_the_focal_plane() -> None:
    """Three alerts of other exposures, at 42 and 156 degrees."""
    for alert in records((REAL / "lsst-detectors" / "three.avro").read_bytes()):
        for kind in KINDS:
            _, hdu = fits.first_image(alert[f"cutout{kind.title()}"])
            axes = sky_axes(hdu, "lsst")
            assert axes is not None
            check_position_angle(hdu, axes)


@needs_real
def test_ztfs_pixels_agree_with_the_positions_of_their_alerts() -> None:
    """Detector coordinates of a night grow to the west and to the south, 1.01 arcsec a pixel."""
    found = []
    for path in REAL.glob("ztf/*.avro"):
        (alert,) = records(path.read_bytes())
        own = alert["candidate"]
        found.append([own[key] for key in ("pid", "xpos", "ypos", "ra", "dec")])
    table = np.array(found)
    exposures = table[:, 0] // 100  # the exposure and its quadrant
    checked = 0
    for exposure in np.unique(exposures):
        rows = table[exposures == exposure, 1:]
        if len(rows) < 4:
            continue
        offsets = rows - rows.mean(0)
        offsets[:, 2] *= np.cos(np.radians(rows[:, 3].mean()))
        matrix, *_ = np.linalg.lstsq(offsets[:, :2], offsets[:, 2:], rcond=None)
        want = np.array(surveys.named("ztf").SKY_AXES).reshape(2, 2)
        np.testing.assert_allclose(matrix.T * 3600, want * 3600, atol=0.03)
        checked += 1
    assert checked


@needs_real
def test_a_galaxy_is_shown_as_it_lies_on_the_sky() -> None:
    """ZTF21abiuvdk is 8 arcsec east of the nucleus of NGC 7814, which is seen edge-on at 135 deg.

    So in a picture with north up and east left the nucleus is right of the centre, and the disc
    rises from lower left to upper right. The nucleus tells east from west, and with that the disc
    tells north from south.
    """
    shown = 0
    for path in REAL.glob("ztf-one-object/*.avro"):
        (alert,) = records(path.read_bytes())
        file = alert["cutoutTemplate"]["stampData"]
        if fits.image(file).shape != (63, 63):
            continue
        panel = opened(thumbnail([file, None, None], "ztf").png)[:, :63].astype(float)
        light = (panel - np.percentile(panel, 20)).clip(0, None) ** 2
        up, right = np.mgrid[31:-32:-1, -31:32]
        x, y = ((light * at).sum() / light.sum() for at in (right, up))
        assert 4 < x < 12
        assert (light * (right - x) * (up - y)).sum() > 0
        shown += 1
    assert shown > 20
