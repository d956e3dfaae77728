import gzip
import io
import warnings
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest
from astropy.io import fits
from astropy.wcs import WCS

from stampede_simulator import lsst_cutouts
from stampede_simulator.cutout_images import gzipped
from stampede_simulator.simulator import Fields, Mix, Simulator
from tests.support.alerts import made_alerts
from tests.support.alerts.avro_reading import decode

SIZES = {"science": 34_560, "difference": 34_560, "template": 43_200}  # of real cutouts, 30 x 30
PSF = {"science": 17_280, "difference": 17_280, "template": 25_920}
KINDS = tuple(SIZES)
needs_real = pytest.mark.skipif(
    not made_alerts.REAL.is_dir(), reason="the real alerts (../shared/data) are not here"
)


@pytest.fixture(scope="module")
def lsst():
    return list(Simulator(1, Fields(objects=60), Mix(lsst_share=1, null_cutouts=0)).alerts(240))


@pytest.fixture(scope="module")
def ztf():
    return list(Simulator(5, Fields(objects=10), Mix(lsst_share=0, null_cutouts=0)).alerts(60))


def zstd(file):
    return pa.Codec("zstd", 1).compress(file, asbytes=True)


def images(alert):
    return {kind: fits.getdata(io.BytesIO(image)) for kind, image in alert.fits.items()}


def test_lsst_cutouts_are_fits_like_the_real_ones(lsst):
    shapes = set()
    for alert in lsst[:60]:
        for kind, image in alert.fits.items():
            with fits.open(io.BytesIO(image)) as hdus:
                hdus.verify("exception")
                assert [hdu.name for hdu in hdus] == ["PRIMARY", "UNCERT", "PSFIMAGE"]
                assert hdus[0].data.shape == hdus[1].data.shape
                assert (hdus[1].data > 0).all()
                assert hdus[2].data.sum() == pytest.approx(1)
                shapes.add(hdus[0].data.shape)
                if hdus[0].data.shape == (30, 30):
                    assert len(image) == SIZES[kind]
                assert len(image) % 2880 == 0
    assert {(30, 30), (102, 102)} <= shapes


@pytest.mark.long
def test_lsst_coordinates_point_to_the_source(lsst):
    checked = 0
    for alert in lsst:
        source = decode("lsst", alert.body)["diaSource"]
        for kind in ("science", "difference"):
            with fits.open(io.BytesIO(alert.fits[kind])) as hdus:
                header, wcs, image = hdus[0].header, WCS(hdus[0].header), hdus[0].data
            corner = header["CUTMINX"], header["CUTMINY"]
            on_detector = np.array([source["x"], source["y"]], "f4") - corner
            assert on_detector == pytest.approx(wcs.wcs.crpix - 1, abs=1e-3)
            x, y = wcs.all_world2pix(source["ra"], source["dec"], 0)
            assert np.allclose(np.hypot(*wcs.pixel_scale_matrix) * 3600, 0.2)
            if kind == "difference" and abs(source["snr"]) > 30:
                assert np.hypot(*(centre(np.sign(source["psfFlux"]) * image) - (x, y))) < 1
                checked += 1
    assert checked > 10


def test_alerts_of_a_visit_and_detector_share_their_psfs(lsst):
    tails, alerts = defaultdict(set), Counter()
    for alert in lsst:
        tail = {kind: image[-PSF[kind] :] for kind, image in alert.fits.items()}
        assert tail["science"] == tail["difference"]
        exposure = alert.points[0].visit, alert.points[0].detector
        tails[exposure].add((tail["science"], tail["template"]))
        alerts[exposure] += 1
    assert {len(pairs) for pairs in tails.values()} == {1}
    assert len(set.union(*tails.values())) == len(tails) > 3
    assert max(alerts.values()) >= 20


@needs_real
@pytest.mark.real
def test_lsst_cutouts_have_the_cards_of_real_ones(lsst):
    def cards(file):
        written = lsst_cutouts.WRITTEN
        with fits.open(io.BytesIO(file)) as hdus:
            return [
                [(c.keyword, c.comment, None if c.keyword in written else c.value) for c in h.cards]
                for h in (hdu.header for hdu in hdus)
            ]

    alert = next(one for one in lsst if len(one.fits["science"]) == SIZES["science"])
    theirs = made_alerts.real_rubin_cutouts()[0]
    for kind in KINDS:
        assert cards(alert.fits[kind]) == cards(theirs[kind])


@needs_real
@pytest.mark.real
@pytest.mark.parametrize("compress", [gzipped, zstd], ids=["gzip", "zstd"])
def test_lsst_cutouts_take_the_space_of_real_ones(lsst, compress):
    def ratio(alerts):
        files = [b"".join(alert[kind] for kind in KINDS) for alert in alerts]
        return sum(len(compress(file)) for file in files) / sum(map(len, files))

    small = [one.fits for one in lsst if len(one.fits["science"]) == SIZES["science"]]
    assert ratio(small) == pytest.approx(ratio(made_alerts.real_rubin_cutouts()), rel=0.05)


def centre(image):
    """Centroid (x, y) of the light within 3 pixels of the brightest pixel."""
    row, column = np.unravel_index(image.argmax(), image.shape)
    rows, columns = np.mgrid[row - 3 : row + 4, column - 3 : column + 4]
    light = np.clip(image[rows, columns], 0, None)
    return np.array([(light * columns).sum(), (light * rows).sum()]) / light.sum()


@pytest.mark.parametrize("survey", ["lsst", "ztf"])
def test_science_is_template_and_difference(survey, request):
    for alert in request.getfixturevalue(survey)[:30]:
        image = images(alert)
        scale = np.abs(image["science"]).max()
        total = image["template"] + image["difference"]
        assert np.allclose(image["science"], total, rtol=1e-5, atol=1e-5 * scale)


def test_the_flux_of_the_difference_is_that_of_the_alert(lsst):
    pulls = []
    for alert in lsst:
        with fits.open(io.BytesIO(alert.fits["difference"])) as hdus:
            wcs, image = WCS(hdus[0].header), hdus[0].data
        x, y = wcs.wcs.crpix - 1
        rows, columns = np.mgrid[: len(image), : len(image)]
        core = 3.6 / (2 * np.sqrt(2 ** (1 / 3) - 1))
        psf = (1 + ((columns - x) ** 2 + (rows - y) ** 2) / core**2) ** -3.0
        psf /= psf.sum()
        detection = alert.points[0]
        pulls.append(((image * psf).sum() / (psf**2).sum() - detection.flux) / 120)
    assert abs(np.mean(pulls)) < 0.5
    assert 0.7 < np.std(pulls) < 1.4


def test_ztf_cutouts_are_fits_and_gzipped(ztf):
    for alert in ztf[:20]:
        packet = decode("ztf", alert.body)
        for kind, image in alert.fits.items():
            stamp = packet[f"cutout{kind.title()}"]
            assert stamp["fileName"].endswith(".fits.gz")
            assert gzip.decompress(stamp["stampData"]) == image
            assert 12_000 < len(stamp["stampData"]) < 17_000
            assert stamp["stampData"][4:8] == bytes(4)  # no time in it
            with warnings.catch_warnings(), fits.open(io.BytesIO(image)) as hdus:
                hdus.verify("exception")
                assert hdus[0].data.shape == (63, 63)
                assert hdus[0].data.dtype == np.dtype(">f4")


def test_a_template_stays_the_same(ztf):
    templates = {}
    for alert in ztf:
        assert (
            templates.setdefault(alert.object_id, alert.fits["template"])
            == (alert.fits["template"])
        )
    assert len(set(templates.values())) == len(templates) > 3


def test_every_exposure_has_its_own_noise(lsst):
    assert len({alert.fits["difference"] for alert in lsst}) == len(lsst)
