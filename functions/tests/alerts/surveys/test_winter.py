"""WINTER: alerts as fastavro reads them, what its cutouts show, the way from bytes to HTTP."""

import gzip
import math
import re
from pathlib import Path

import numpy as np
import pytest

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.surveys import winter
from stampede.config.settings import Settings
from stampede.events.cloudevents.event import Position
from stampede.events.workers.worker import Batch
from stampede.handlers import cutouts, lightcurves
from stampede.images.fits import unpack
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede_local.demo import oracle
from tests.support.alerts import made_alerts, winter_alerts
from tests.support.alerts.avro_reading import records
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.alerts.oracle_comparison import assert_as_the_oracle
from tests.support.read.read_service import serving

FILES = sorted((made_alerts.REAL / "other-surveys" / "winter").glob("*.avro"))
FITS = made_alerts.FITS
REAL = pytest.mark.skipif(not FILES, reason="the real alerts (../shared/data) are not here")


@pytest.fixture
def decoder(tmp_path: Path) -> BatchDecoder:
    return make_batch_decoder(tmp_path)


def test_its_alerts_are_read_as_fastavro_reads_them(decoder) -> None:
    messages = [
        winter_alerts.alert(),
        made_alerts.ztf_alert(5),
        winter_alerts.alert(7, prv_candidates=None),
    ]
    assert_as_the_oracle(decoder, messages)


def test_its_bands_signs_and_times(decoder) -> None:
    rows = decoder.detections([winter_alerts.alert()]).rows.to_pylist()
    assert [row["band"] for row in rows] == ["J", "Y", "J", "Hs", None]
    assert [row["flux"] > 0 for row in rows] == [True, True, False, True, True]
    own = rows[0]
    assert own["mjd"] == pytest.approx(60380.53 + 37 / 86400, abs=1e-8)
    assert own["flux"] == pytest.approx(10 ** ((31.4 - 13.5) / 2.5))
    assert (own["detector"], own["programid"]) == (4, None)
    assert own["processed_mjd"] > own["mjd"] == own["processed_mjd"] - 1 / 86400


def test_a_deprecated_candidate_is_withdrawn(decoder) -> None:
    candidate = winter_alerts.record()["candidate"] | {"deprecated": True}
    message = winter_alerts.alert(candidate=candidate)
    rows = decoder.detections([message]).rows.to_pylist()
    assert [row["withdrawn"] for row in rows] == [True, False, False, False, False]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"objectid": ""}, "its object id is not 1 to 64"),
        ({"candid": 0}, "its id is not a positive number"),
        ({"cutout_science": b"GIF89a"}, "the science cutout of alert 3608694 is not FITS"),
    ],
)
def test_an_alert_that_cannot_be_served_is_refused(decoder, changes: dict, reason: str) -> None:
    (fault,) = decoder.cutouts([winter_alerts.alert(**changes)]).faults
    assert (fault.status, reason in fault.message) == (422, True), fault.message


@REAL
@pytest.mark.real
def test_real_alerts_are_read_as_fastavro_reads_them(decoder) -> None:
    messages = [file.read_bytes() for file in FILES]
    assert_as_the_oracle(decoder, messages)
    (raw,) = (each.table for each in decoder.detections(messages).raw)
    assert {"sgmag1", "sgmag1_2"} <= {field.name for field in raw["candidate"].type}
    assert {oracle.head(message)["survey"] for message in messages} == {"winter"}


def place_of(designation: str) -> tuple[float, float]:
    """Right ascension and declination in the name of a 2MASS source, degrees."""
    found = re.fullmatch(r"(\d\d)(\d\d)(\d\d\d\d)([+-])(\d\d)(\d\d)(\d\d\d)", designation)
    assert found
    hours, minutes, seconds, sign, degrees, arcmin, arcsec = found.groups()
    ra = 15 * (int(hours) + int(minutes) / 60 + int(seconds) / 360000)
    return ra, float(f"{sign}1") * (int(degrees) + int(arcmin) / 60 + int(arcsec) / 36000)


@REAL
@pytest.mark.real
def test_stars_in_its_cutouts_show_their_axes_and_that_magnitudes_are_ab() -> None:
    """The stars lie where `SKY_AXES` has them, each 0.6 to 1.2 mag fainter than 2MASS's Vega J."""
    differences = []
    for file in FILES:
        [record] = records(file.read_bytes())
        own = record["candidate"]
        image = fits_of(record["cutout_science"])
        y, x = np.indices(image.shape)
        for n in (1, 2, 3):
            if (own[f"tmobjectid{n}"] or "nan").strip() == "nan" or own[f"tmjmag{n}"] > 14:
                continue
            ra, dec = place_of(own[f"tmobjectid{n}"].strip())
            east, north = (ra - own["ra"]) * math.cos(math.radians(dec)), dec - own["dec"]
            if math.hypot(east, north) < 6 / 3600:  # it blends with the candidate
                continue
            axes = winter.SKY_AXES
            right, up = east / axes.x_east, north / axes.y_north
            near = (x - 40 - right) ** 2 + (y - 40 - up) ** 2 <= 36
            counts = np.nansum(image[near])
            assert counts > 0
            magnitude = own["magzpsci"] - 2.5 * math.log10(counts)
            differences.append(magnitude - own[f"tmjmag{n}"])
    assert len(differences) >= 5
    assert all(0.5 < each < 1.3 for each in differences), differences
    assert np.mean(differences) == pytest.approx(0.91, abs=0.2)


def fits_of(image: bytes) -> np.ndarray:
    """The pixels of a cutout, less their median."""
    data = gzip.decompress(image)
    pixels = np.frombuffer(data, ">f4", 81 * 81, 2880).reshape(81, 81).astype(float)
    return pixels - np.nanmedian(pixels)


def test_from_its_bytes_to_http(tmp_path, monkeypatch) -> None:
    objects, messages = MemoryObjects(), [winter_alerts.alert(n) for n in (3608694, 3608794)]
    positions = [Position("winter", 0, n) for n in range(2)]
    for function in (cutouts, lightcurves):
        monkeypatch.setattr(function, "open_objects", lambda settings: objects)
        flush = function.make_batch_storer(Settings(spool=tmp_path))
        assert flush(Batch(messages, positions)).outcomes == [None, None]
    for read in serving(make_app(Settings(), objects)):
        assert unpack(read("/v1/alerts/3608694/cutouts/science?survey=winter").data) == FITS
        assert read("/v1/alerts/3608694/packet").data == messages[0]
        curve = read("/v1/objects/WNTR24aaaaa/lightcurve?format=json&band=J,Hs").json()
        assert curve["survey"] == "winter"
        assert {row["band"] for row in curve["detections"]} == {"J", "Hs"}
        page = read("/objects/WNTR24aaaaa").data.decode()
        assert re.findall('name="bands" value="(.*?)"', page) == ["Y", "J", "Hs", "none"]
        assert 'class="chip">WINTER<' in page
        assert "sgmag1" in read("/alerts/3608694?survey=winter").data.decode()
