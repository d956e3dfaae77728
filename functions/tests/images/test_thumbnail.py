import gzip
from collections import Counter
from hashlib import sha256
from io import BytesIO
from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from astropy.io.fits import ImageHDU, PrimaryHDU
from astropy.visualization import AsinhStretch, ManualInterval
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from stampede.alerts.columns import CUTOUT, KINDS, THUMBNAIL
from stampede.alerts.surveys.survey import SkyAxes
from stampede.config.settings import Settings
from stampede.handlers.decoding import make_batch_decoder
from stampede.images import fits
from stampede.images.hdu import Hdu
from stampede.images.png import BLANK, frame, greys, scaled
from stampede.images.stretch import limits
from stampede.images.thumbnail import (
    DRAWING,
    GAP,
    LEVELS,
    PANEL,
    SHAPE,
    drawn_from,
    thumbnail,
    thumbnails,
)
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.pack import read_rows, write_pack
from tests.support.alerts.fits_files import fits_file, fits_of, lsst, source, with_sky_axes, ztf
from tests.support.alerts.made_alerts import REAL

STEP = 255 / (LEVELS - 1)


def panels(files: list) -> tuple[list[np.ndarray], Counter]:
    """The three panels of a thumbnail, as a viewer sees them, and what was counted."""
    png, counted = thumbnail(files)
    picture = np.asarray(Image.open(BytesIO(png))).astype(int)
    assert picture.shape == SHAPE == (63, 193)
    return [picture[:, n * (PANEL + GAP) :][:, :PANEL] for n in range(3)], counted


def astropys(image: np.ndarray) -> np.ndarray:
    """What astropy makes of an image between the limits documented in `stretch`."""
    return (
        np.flipud((AsinhStretch(0.1) + ManualInterval(*limits(image)))(image.astype(float))) * 255
    )


def row(alert_id: int, kind: str, file: bytes | None, survey: str = "ztf") -> dict:
    return {
        "alert_id": alert_id,
        "survey": survey,
        "kind": kind,
        "object_id": f"Z{alert_id}",
        "mjd": 59000.0 + alert_id,
        "band": "g",
        "ra": None,
        "dec": None,
        "fits": file,
    }


def test_three_images_side_by_side_as_astropy_stretches_them() -> None:
    images = [source(peak=peak, seed=n) for n, peak in enumerate((100, 5000, -500))]
    shown, counted = panels([ztf(image) for image in images])
    for panel, image in zip(shown, images, strict=True):
        assert np.abs(panel - astropys(image)).max() <= STEP / 2 + 1
    assert counted == {"image": 3}


def test_the_source_is_what_a_person_sees_first() -> None:
    shown, _ = panels([ztf(source(peak=peak)) for peak in (150, 500, 50_000)])
    for panel in shown:
        y, x = np.unravel_index(panel.argmax(), panel.shape)
        assert (62 - y, x) == pytest.approx((44, 25), abs=2)
        assert panel.max() > np.median(panel) + 100


def test_images_of_any_size_fill_a_panel() -> None:
    small, large = source(size=21), source(size=126)
    shown, _ = panels([lsst(small), lsst(large), gzip.compress(lsst(small))])
    repeated = astropys(small).repeat(3, 0).repeat(3, 1)
    assert np.abs(shown[0] - repeated).max() <= STEP / 2 + 1
    mean = astropys(large).reshape(63, 2, 63, 2).mean((1, 3))
    assert np.abs(shown[1] - mean).max() <= STEP / 2 + 2
    np.testing.assert_array_equal(shown[0], shown[2])


@pytest.mark.parametrize("shape", [(63, 63), (63, 40), (30, 30), (41, 17), (1, 62), (102, 102)])
def test_a_picture_is_that_of_the_exact_stretch_but_for_a_grey_in_a_thousand_pixels(
    shape: tuple[int, int],
) -> None:
    """A table of 65,536 places gives a pixel at the border of two greys the other one of them."""
    levels = np.round(np.arange(LEVELS) * STEP)
    others, pixels = 0, 0
    for seed in range(20):
        image = source(size=102, peak=10.0 ** (1 + seed % 5), seed=seed)[: shape[0], : shape[1]]
        image[seed % len(image), : seed % 3] = np.nan
        (panel, _, _), _ = panels([ztf(image), None, None])
        exact = scaled(greys(image), PANEL, averaged=True)
        top, left = ((PANEL - side) // 2 for side in exact.shape)
        drawn = panel[top : top + exact.shape[0], left : left + exact.shape[1]]
        shown, want = (np.round(each / STEP).astype(int) for each in (drawn, exact))
        np.testing.assert_array_equal(drawn, levels[shown])
        assert np.abs(shown - want).max() <= 1
        others, pixels = others + np.count_nonzero(shown != want), pixels + shown.size
    assert others < pixels / 1000


def test_an_image_in_the_last_hdu_is_drawn_from_head_and_tail() -> None:
    """A pack stores the last HDU apart, and here it is the only image."""
    file = fits_file(PrimaryHDU(), ImageHDU(source()))
    rows = [row(1, kind, file) | {"message_crc32": 1} for kind in KINDS]
    packed, _ = read_rows(write_pack(pa.Table.from_pylist(rows, CUTOUT), Coverage()).data)
    assert len(packed["tail"][0].as_py()) > len(packed["fits"][0].as_py())
    drawn = thumbnails(packed)
    assert drawn.panels == {"image": 3}
    assert drawn.rows["png"][0].as_py() == thumbnail([file] * 3, "ztf").png


def test_an_image_cut_off_by_the_edge_keeps_its_shape() -> None:
    image = source()[:, :40]
    (panel, _, _), _ = panels([ztf(image), None, None])
    assert np.abs(panel[:, 11:51] - astropys(image)).max() <= STEP / 2 + 1
    assert np.abs(panel[:, :11] - BLANK).max() <= STEP / 2
    assert np.abs(panel[:, 51:] - BLANK).max() <= STEP / 2


def fixed(rows: int, columns: int, top: int = 1000) -> np.ndarray:
    """An image that any machine makes alike."""
    number = np.arange(rows * columns, dtype=np.int64)
    return (number * number * 7919 % top).astype(np.float32).reshape(rows, columns)


def fixed_inputs() -> list[tuple[list[bytes | None], str]]:
    hole, spot = fixed(63, 63), fixed(63, 63, 90)
    hole[10:20, 30:33] = np.nan
    spot[40:44, 20:24] += 5000
    axes = SkyAxes(0, 1, -1, 0), SkyAxes(0.8, 0.6, -0.6, 0.8)
    turned = [with_sky_axes(lsst(spot), each) for each in axes]
    return [
        ([ztf(spot), ztf(hole), ztf(fixed(63, 40))], "ztf"),
        ([lsst(fixed(30, 30)), lsst(fixed(102, 102)), lsst(fixed(41, 17))], "lsst"),
        ([lsst(spot), *turned], "lsst"),
        ([None, b"no FITS", ztf(np.zeros((63, 63), np.float32))], "ztf"),
    ]


PICTURES = {1: "0690b5918ab7090b"}


def test_the_number_of_the_drawing_changes_with_the_pictures() -> None:
    """If it fails, raise `DRAWING`, and note here what these inputs look like then."""
    digest = sha256()
    for files, survey in fixed_inputs():
        picture = Image.open(BytesIO(thumbnail(files, survey).png))
        digest.update(picture.tobytes())
    assert {DRAWING: digest.hexdigest()[:16]} == PICTURES


def test_a_row_says_what_it_was_drawn_from() -> None:
    """By the files as sent, of rows and of packs, where files are cut in two."""
    files = {kind: lsst(source(30, seed=n)) for n, kind in enumerate(KINDS)}
    sent = [row(1, kind, file) | {"message_crc32": 1} for kind, file in files.items()]
    sent += [row(2, kind, ztf(source(seed=9))) | {"message_crc32": 2} for kind in KINDS[1:]]
    rows = pa.Table.from_pylist(sent, CUTOUT)
    packed, _ = read_rows(write_pack(rows, Coverage()).data)
    assert any(tail for tail in packed["tail"].to_pylist())
    checksums = [[crc32(file) for file in files.values()], [None, *[crc32(sent[-1]["fits"])] * 2]]
    expected = [drawn_from(each) for each in checksums]
    for cutouts in (rows, packed):
        assert thumbnails(cutouts).rows["drawn_from"].to_pylist() == expected


def test_each_cutout_and_the_drawing_count(monkeypatch: pytest.MonkeyPatch) -> None:
    variants = [[1, 2, 3], [1, 2, 4], [2, 1, 3], [1, 2, 0], [1, 2, None], [None, 1, 2]]
    found = {drawn_from(each) for each in variants}
    monkeypatch.setattr("stampede.images.thumbnail.DRAWING", DRAWING + 1)
    found |= {drawn_from(each) for each in variants}
    assert len(found) == 2 * len(variants)


BAD = {
    "not FITS": b"GIF89a",
    "empty": b"",
    "gzip cut short": ztf(source())[:999],
    "gzip of nothing": gzip.compress(b""),
    "pixels cut short": lsst(source())[:6000],
    "a bomb": gzip.compress(bytes(5 << 20)),
    "no header's end": b"SIMPLE  = T".ljust(80) * 99,
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_damaged_and_missing_images_look_different(bad: bytes) -> None:
    (first, second, third), counted = panels([bad, None, ztf(source())])
    assert np.abs(first - frame(PANEL, crossed=True)).max() <= STEP / 2
    assert np.abs(second - frame(PANEL, crossed=False)).max() <= STEP / 2
    assert np.abs(third - astropys(source())).max() <= STEP / 2 + 1
    assert not np.array_equal(first, second)
    assert counted == {"damaged": 1, "absent": 1, "image": 1}


PLAIN = lsst(source(size=8))


@given(st.integers(0, 5759), st.binary(min_size=1, max_size=80), st.booleans())
def test_a_damaged_image_raises_no_error(at: int, noise: bytes, packed: bool) -> None:
    file = PLAIN[:at] + noise + PLAIN[at + len(noise) :]
    _, counted = panels([gzip.compress(file) if packed else file, None, None])
    assert counted.total() == 3


def test_nothing_but_nan_is_blank() -> None:
    (panel, _, _), _ = panels([ztf(np.full((63, 63), np.nan, np.float32)), None, None])
    assert np.abs(panel - BLANK).max() <= STEP / 2


def test_a_row_for_every_alert() -> None:
    files = {kind: ztf(source(seed=n)) for n, kind in enumerate(KINDS)}
    rows = [row(alert, kind, file) for kind, file in files.items() for alert in (3, 1, 2)]
    rows += [row(1, "science", ztf(source(seed=9)), "lsst"), row(4, "template", b"bad")]
    drawn = thumbnails(pa.Table.from_pylist(rows, CUTOUT))
    assert drawn.rows.schema.equals(THUMBNAIL)
    found = {(r["alert_id"], r["survey"]): r for r in drawn.rows.to_pylist()}
    assert set(found) == {(1, "ztf"), (2, "ztf"), (3, "ztf"), (1, "lsst"), (4, "ztf")}
    assert found[2, "ztf"]["png"] == thumbnail([*files.values()], "ztf").png
    assert found[2, "ztf"]["object_id"] == "Z2"
    assert found[2, "ztf"]["mjd"] == 59002.0
    assert drawn.panels == {"image": 10, "absent": 4, "damaged": 1}
    assert thumbnails(CUTOUT.empty_table()).rows.num_rows == 0


@pytest.mark.skipif(not REAL.exists(), reason="no real alerts beside the repository")
def test_real_alerts_take_little_room() -> None:
    files = sorted(REAL.glob("ztf/*.avro"))
    cutouts = make_batch_decoder(Settings()).cutouts([file.read_bytes() for file in files]).rows
    drawn = thumbnails(cutouts)
    assert drawn.panels == {"image": 3 * len(files)}
    assert np.mean([len(png) for png in drawn.rows["png"].to_pylist()]) < 6000
    for file in cutouts["fits"].to_pylist()[:30]:
        image = fits.image(file)
        if image.shape == (63, 63) and np.isfinite(image).all():
            (panel, _, _), _ = panels([file, None, None])
            assert np.abs(panel - astropys(image)).max() <= STEP / 2 + 1


def test_a_bad_image_blocks_none_of_its_neighbours(monkeypatch) -> None:
    """Whatever goes wrong with one image, the others are drawn."""
    good, bad = ztf(source()), fits_of(5, 5, -32).replace(b"BITPIX", b"GCOUNT")
    real = fits.first_image

    def first_image(file: bytes, limit: int) -> tuple[np.ndarray, Hdu]:
        if file == b"odd":
            raise ZeroDivisionError
        return real(file, limit)

    monkeypatch.setattr(fits, "first_image", first_image)
    rows = [row(n, kind, file) for n, file in enumerate((bad, b"odd", good)) for kind in KINDS]
    drawn = thumbnails(pa.Table.from_pylist(rows, CUTOUT))
    assert drawn.panels == {"image": 3, "damaged": 6}
    assert drawn.rows["alert_id"].to_pylist() == [0, 1, 2]
