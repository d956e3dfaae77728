"""`images` gives the pixels that a real server gives of the same bucket, and never damaged ones."""

from io import BytesIO
from pathlib import Path

import httpx
import numpy as np
import pytest

import stampede_client
from stampede.config.settings import Settings
from stampede.images.fits import image
from stampede.read.app import make_app
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede_client import fits_planes
from stampede_client.planes import fitted
from tests.support.alerts import made_alerts
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.alerts.fits_files import fits_file, fits_of, source, ztf
from tests.support.alerts.odd_stamps import BROKEN, IDS, TILED, store_stamps
from tests.support.read.read_service import (
    BOTH,
    LSST_ALERT,
    ZTF_ALERT,
    cutout,
    fill,
    sample_cutouts,
    sample_points,
    serving,
)

NOT_FITS = 666
REAL = made_alerts.real_alerts()


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bucket")
    fill(DirectoryObjects(root), sample_cutouts(), sample_points(), Coverage())
    return root


def test_the_pixels_are_those_of_the_server(bucket: Path) -> None:
    ids: list[int | str] = [LSST_ALERT, str(ZTF_ALERT), BOTH, 12345]
    found = stampede_client.images(str(bucket), ids=ids, size=63)
    assert found.planes.dtype == np.float32
    assert found.planes.shape == (11, 63, 63)
    assert found.missing == [12345]
    assert found.kinds[found.alert_ids == ZTF_ALERT].tolist() == list(stampede_client.cutouts.KINDS)
    assert found.kinds[found.alert_ids == LSST_ALERT].tolist() == ["science", "difference"]
    for read in serving(make_app(Settings(), DirectoryObjects(bucket))):
        for pixels, alert_id, survey, kind in zip(*found[:4], strict=True):
            path = f"/v1/alerts/{alert_id}/cutouts/{kind}"
            response = httpx.get(read.url + path, params={"format": "npy", "survey": survey})
            served = np.load(BytesIO(response.content))
            assert np.array_equal(pixels, fitted(served, 63), equal_nan=True)


def test_odd_stamps_have_the_pixels_of_the_server_or_none(tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path)
    store_stamps(objects)
    found = stampede_client.images(str(tmp_path), ids=list(IDS.values()), errors="skip")
    pixels = dict(zip(found.alert_ids.tolist(), found.planes, strict=True))
    for read in serving(make_app(Settings(), objects)):
        for name, alert_id in IDS.items():
            response = httpx.get(f"{read.url}/v1/alerts/{alert_id}/cutouts/science?format=npy")
            if name in TILED:  # the client reads none
                assert (response.status_code, alert_id in pixels) == (200, False)
            elif name in BROKEN:
                assert (response.status_code, alert_id in pixels) == (422, False)
            else:
                served = np.load(BytesIO(response.content))
                assert np.array_equal(pixels[alert_id], served, equal_nan=True)
    assert len(found.skipped) == len(BROKEN | TILED)


def test_a_night_of_one_kind(bucket: Path) -> None:
    night = int(next(bucket.glob("packs/*")).name)
    found = stampede_client.images(
        f"file://{bucket}", night=night, kinds=["science"], size=30, errors="skip"
    )
    assert sorted(found.alert_ids) == sorted([ZTF_ALERT, LSST_ALERT, BOTH, BOTH])
    [why] = found.skipped
    assert why.startswith("the science cutout of alert 666: ")
    assert "the FITS header does not end" in why
    assert not stampede_client.images(str(bucket), night=night + 1).alert_ids.size


def test_what_cannot_be_given_is_named(bucket: Path) -> None:
    for arguments, words in (
        ({}, "either ids or night"),
        ({"ids": [1], "night": 1}, "either ids or night"),
        ({"ids": ["x"]}, "no alert id"),
        ({"ids": [1], "kinds": ["sciense"]}, "no kind of cutout"),
        ({"ids": [1], "size": 0}, "size is 0"),
        ({"ids": [LSST_ALERT, ZTF_ALERT]}, "differ in shape.*give size"),
    ):
        with pytest.raises(stampede_client.BadInput, match=words):
            stampede_client.images(str(bucket), **arguments)
    with pytest.raises(stampede_client.Damaged, match="alert 666"):
        stampede_client.images(str(bucket), ids=[NOT_FITS])


def test_any_damaged_byte_of_an_image_is_found(tmp_path: Path) -> None:
    rows = [row for row in sample_cutouts() if row["alert_id"] == LSST_ALERT]
    fill(DirectoryObjects(tmp_path), rows, [], Coverage())
    true = stampede_client.images(str(tmp_path), ids=[LSST_ALERT])
    [pack] = tmp_path.glob("packs/*/*")
    whole = pack.read_bytes()
    pack.chmod(0o600)
    damaged = 0
    for at in range(0, len(whole), 509):
        pack.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        found = stampede_client.images(str(tmp_path), ids=[LSST_ALERT], errors="skip")
        kept = np.isin(true.kinds, found.kinds)
        assert np.array_equal(found.planes, true.planes[kept]) or not kept.any()
        damaged += len(found.skipped)
    assert damaged > 10
    pack.write_bytes(whole[:100])
    with pytest.raises(stampede_client.Damaged):
        stampede_client.images(str(tmp_path), ids=[LSST_ALERT])


def test_one_version_of_an_alert_of_packs_that_are_there(tmp_path: Path) -> None:
    """The version with the most images wins; if its pack is deleted, the other one."""
    objects = DirectoryObjects(tmp_path)
    for message, night, kinds in ((1, 60_000, ["science", "difference"]), (2, 60_001, ["science"])):
        pixels = source(seed=message)
        sent = [cutout(7, "ztf", kind, "a", float(night), ztf(pixels)) for kind in kinds]
        coverage = Coverage.of({("ztf", 0): [message]})
        fill(objects, [row | {"message_crc32": message} for row in sent], [], coverage)
    found = stampede_client.images(str(tmp_path), ids=[7])
    assert found.kinds.tolist() == ["science", "difference"]
    assert np.array_equal(found.planes[0], source(seed=1))
    next(tmp_path.glob("packs/60000/*")).unlink()
    found = stampede_client.images(str(tmp_path), ids=[7])
    assert np.array_equal(found.planes, [source(seed=2)])


def plane(file: bytes) -> np.ndarray:
    """The first image of a file."""
    layout, data = fits_planes.first_image(memoryview(file))
    [found] = fits_planes.pixels(layout, [data])
    return found


@pytest.mark.parametrize("bitpix", [8, 16, 32, 64, -32, -64])
def test_each_type_of_pixel_as_the_server_reads_it(bitpix: int) -> None:
    header = fits_of(5, 4, bitpix)[:2880]
    header = header.replace(
        b"END" + b" " * 237,
        b"BSCALE  =                  2.5".ljust(80)
        + b"BZERO   =                1D2".ljust(80)
        + b"END".ljust(80),
    )
    pixels = np.arange(20, dtype={8: ">u1", -32: ">f4", -64: ">f8"}.get(bitpix, f">i{bitpix // 8}"))
    file = header + pixels.tobytes().ljust(2880, b"\0")
    assert np.array_equal(plane(file), image(file).astype(np.float32))
    assert plane(file)[1, 1] == 5 * 2.5 + 100


def test_the_first_image_may_be_an_extension() -> None:
    from astropy.io import fits

    file = fits_file(fits.PrimaryHDU(), fits.ImageHDU(source(9)))
    assert np.array_equal(plane(file), source(9))


@pytest.mark.real
@pytest.mark.skipif(not REAL, reason="the real alerts (../shared/data) are not here")
def test_real_cutouts_as_the_server_reads_them(tmp_path: Path) -> None:
    found = make_batch_decoder(tmp_path, 70_000.0).cutouts(REAL)
    assert found.faults == [None] * len(REAL)
    rows = found.rows.to_pylist()
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    fill(DirectoryObjects(bucket), rows, [], Coverage())
    ids = {row["alert_id"] for row in rows}
    read = stampede_client.images(str(bucket), ids=ids, size=63)
    sent = {(row["alert_id"], row["kind"]): row["fits"] for row in rows if row["fits"]}
    assert len(read.planes) == len(sent) > 60
    for pixels, alert_id, kind in zip(read.planes, read.alert_ids, read.kinds, strict=True):
        assert np.array_equal(pixels, fitted(image(sent[alert_id, kind]), 63), equal_nan=True)
