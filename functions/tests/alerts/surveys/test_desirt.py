"""DESIRT: points, ids and times of its alerts, what the real one proves, the way to HTTP."""

import math
from datetime import UTC, datetime
from pathlib import Path

import pytest

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.config.settings import Settings
from stampede.events.cloudevents.event import Position
from stampede.events.workers.worker import Batch
from stampede.handlers import cutouts, lightcurves
from stampede.images.fits import unpack
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from tests.support.alerts import desirt_alerts, made_alerts, winter_alerts
from tests.support.alerts.avro_reading import records
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.alerts.oracle_comparison import assert_as_the_oracle
from tests.support.read.read_service import serving

FILE = made_alerts.REAL / "other-surveys" / "decam" / "alert.avro"
REAL = pytest.mark.skipif(not FILE.exists(), reason="the real alerts (../shared/data) are not here")
DAY_MS = 86_400_000


@pytest.fixture
def decoder(tmp_path: Path) -> BatchDecoder:
    return make_batch_decoder(tmp_path)


def test_its_points(decoder) -> None:
    images, points = decoder.alerts([desirt_alerts.alert()])
    assert [*images.faults, *points.faults] == [None, None]
    assert [unpack(row["fits"]) for row in images.rows.to_pylist()] == 3 * [made_alerts.FITS]
    rows = points.rows.to_pylist()
    assert [(row["forced"], row["band"], row["flux"]) for row in rows] == [
        (False, "g", 1375.25),
        (True, "g", 1375.25),
        (True, "z", -20.0),
        (True, "z", 50.0),
    ]
    assert {(row["flux_err"], row["limit"]) for row in rows} == {(255.25, False)}
    mjd = 61229.08 + 37 / 86400
    assert [row["mjd"] for row in rows] == pytest.approx([mjd, mjd, mjd - 1, mjd - 2], abs=1e-9)
    ids = [round(day * DAY_MS) for day in (mjd, mjd - 1, mjd - 2)]
    assert [row["source_id"] for row in rows] == [65346, *ids]
    assert {row["processed_mjd"] for row in rows} == {rows[0]["mjd"]}
    assert [row["ra"] for row in rows] == [210.46, None, None, None]


def test_its_alerts_are_read_as_fastavro_reads_them(decoder) -> None:
    messages = [desirt_alerts.alert(), winter_alerts.alert(), desirt_alerts.alert(7, fp_hists=[])]
    assert_as_the_oracle(decoder, messages)


@REAL
@pytest.mark.real
def test_the_real_alert_proves_its_unit_and_its_time_scale(decoder) -> None:
    message = FILE.read_bytes()
    [record] = records(message)
    assert_as_the_oracle(decoder, [message])
    own, *forced = decoder.detections([message]).rows.to_pylist()
    assert len(forced) == len(record["fp_hists"])
    assert own["object_id"] == record["objectId"]
    magnitude = 31.4 - 2.5 * math.log10(own["flux"])
    assert magnitude == pytest.approx(record["candidate"]["forcediffimmag"], abs=1e-4)
    _, day, time, *_ = record["objectId"].split("_")  # of the image: c4d_260708_015517_…
    begin = datetime.strptime(day + time, "%y%m%d%H%M%S").replace(tzinfo=UTC)
    seconds = (own["mjd"] - 40587) * 86400 - 37 - begin.timestamp()
    assert 0 <= seconds < 1


def test_from_its_bytes_to_http(tmp_path, monkeypatch) -> None:
    objects, message = MemoryObjects(), desirt_alerts.alert()
    for function in (cutouts, lightcurves):
        monkeypatch.setattr(function, "open_objects", lambda settings: objects)
        flush = function.make_batch_storer(Settings(spool=tmp_path))
        assert flush(Batch([message], [Position("desirt", 0, 0)])).outcomes == [None]
    for read in serving(make_app(Settings(), objects)):
        cutout = read("/v1/alerts/65346/cutouts/difference?survey=desirt").data
        assert unpack(cutout) == made_alerts.FITS
        assert read("/v1/alerts/65346/packet").data == message
        path = "/v1/objects/c4d_260708_015517_xxx_g_dts-1511/lightcurve?format=json"
        curve = read(path + "&forced=true&band=z").json()
        assert [row["flux"] for row in curve["detections"]] == [50.0, -20.0]
