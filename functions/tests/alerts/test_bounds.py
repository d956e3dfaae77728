"""Bounds at ingest: what `read` could not serve is refused, with its reason."""

import gzip
import math

import pytest

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.bounds import EARLIEST_MJD, MOST_PIXELS
from stampede.alerts.framing import Framing
from stampede.images.fits import unpack
from tests.support.alerts import made_alerts
from tests.support.alerts.batch_decoders import SECRET, make_decoder
from tests.support.alerts.fits_files import fits_of

LATEST = 62000.0
JD = 2400000.5


def rubin(**source) -> bytes:
    record = made_alerts.rubin_record(1101, 1)
    record["diaSource"] |= source
    return made_alerts.confluent(record, 1101)


def rubin_history(**row) -> bytes:
    record = made_alerts.rubin_record(1101, 1)
    good = made_alerts.rubin_record(1101, 2)["diaSource"]
    return made_alerts.confluent(record | {"prvDiaSources": [good, good | row]}, 1101)


def candidate(**values) -> dict:
    return made_alerts.ztf_record()["candidate"] | values


def history(**values) -> bytes:
    return made_alerts.ztf_alert(prv_candidates=[candidate(candid=7), candidate(**values)])


def forced(**values) -> bytes:
    point = {"jd": 2459000.5, "fid": 2, "pid": 79, "rcid": 3}
    counts = dict.fromkeys(("forcediffimflux", "forcediffimfluxunc", "magzpsci"), 1.0)
    return made_alerts.ztf_alert(fp_hists=[{**point, **counts, **values}])


def stamp(data: bytes) -> dict:
    return {"fileName": "x.fits", "stampData": data}


HEADS = {
    "long object id": (made_alerts.ztf_alert(objectId="Z" * 5000), "its object id is not 1 to 64"),
    "65 characters": (made_alerts.ztf_alert(objectId="Z" * 65), "its object id is not 1 to 64"),
    "slash": (made_alerts.ztf_alert(objectId="../x"), "its object id is not"),
    "new line": (made_alerts.ztf_alert(objectId="ZTF18\n"), "its object id is not"),
    "letters of others": (made_alerts.ztf_alert(objectId="ZTF18ä"), "its object id is not"),
    "id 0": (made_alerts.ztf_alert(0), "its id is not a positive number"),
    "negative id": (made_alerts.ztf_alert(-5), "its id is not a positive number"),
    "negative Rubin id": (rubin(diaSourceId=-1), "its id is not a positive number"),
    "negative object": (rubin(diaObjectId=-1), "its object id is not"),
    "jd 0": (made_alerts.ztf_alert(candidate=candidate(jd=0.0)), "before MJD 33282"),
    "1949": (rubin(midpointMjdTai=EARLIEST_MJD - 1), "before MJD 33282"),
    "future": (rubin(midpointMjdTai=LATEST + 1), "in the future (after MJD 62000.0)"),
    "programme 2": (
        made_alerts.ztf_alert(candidate=candidate(programid=2)),
        "programid 2 cannot be stored: its programid is not one that is stored here (1)",
    ),
}
HISTORIES = {
    "jd 0": (history(jd=0.0, candid=8), "a detection with id 8 at MJD -2400000"),
    "jd nan": (history(jd=math.nan, candid=8), "a detection with id 8 at MJD None"),
    "future": (history(jd=LATEST + JD + 1, candid=8), "a detection with id 8 at MJD 62001"),
    "id 0": (history(candid=0), "a detection with id 0"),
    "limit": (history(candid=None, pid=-3), "a limit with id -3"),
    "forced": (forced(jd=0.0), "a forced point with id 79 at MJD -2400000"),
    "forced id": (forced(pid=0), "a forced point with id 0"),
    "Rubin": (rubin_history(midpointMjdTai=-1.0), "a detection with id"),
    "Rubin nan": (rubin_history(midpointMjdTai=math.nan), "at MJD None"),
}
IMAGES = {
    "many pixels": (gzip.compress(fits_of(MOST_PIXELS // 1000 + 1, 1000, 8)), "pixels"),
    "many bytes": (gzip.compress(made_alerts.FITS + bytes(30 << 20)), "unpacks to more than"),
    "text": (b"GIF89a", "it is not gzipped either, and begins with 0x474946383961"),
    "gzipped text": (gzip.compress(b"GIF89a"), "unpacked it begins with 0x474946383961"),
    "damaged gzip": (b"\x1f\x8b\x08\x00" + b"\xff" * 30, "its gzip file is damaged"),
}


@pytest.mark.parametrize("name", HEADS)
def test_an_alert_that_could_not_be_served_is_refused(decoder, name: str) -> None:
    message, reason = HEADS[name]
    for decode in (decoder.cutouts, decoder.detections):
        decoded = decode([made_alerts.ztf_alert(), message])
        good, fault = decoded.faults
        assert good is None
        assert fault is not None
        assert (fault.status, reason in fault.message) == (422, True), fault.message
        assert fault.message.index(reason) < 300


@pytest.mark.parametrize("name", HISTORIES)
def test_a_bad_history_row_is_named(decoder, name: str) -> None:
    message, reason = HISTORIES[name]
    alone = decoder.detections([made_alerts.ztf_alert(5)])
    decoded = decoder.detections([made_alerts.ztf_alert(5), message])
    good, fault = decoded.faults
    assert good is None
    assert fault is not None
    assert (fault.status, reason in fault.message) == (422, True), fault.message
    assert decoded.rows.equals(alone.rows)
    assert sum(raw.table.num_rows for raw in decoded.raw) == 1


@pytest.mark.parametrize("name", IMAGES)
def test_a_stamp_that_could_not_be_shown_is_refused(decoder, name: str) -> None:
    data, reason = IMAGES[name]
    decoded = decoder.cutouts(
        [made_alerts.ztf_alert(5), made_alerts.ztf_alert(cutoutScience=stamp(data))]
    )
    good, fault = decoded.faults
    assert good is None
    assert fault is not None
    assert (fault.status, reason in fault.message) == (422, True), fault.message
    assert decoded.rows.num_rows == 3


def test_a_raw_image_of_many_pixels_is_refused(decoder) -> None:
    record = made_alerts.rubin_record(1101, 1) | {"cutoutTemplate": fits_of(1025, 1025, 8)}
    (fault,) = decoder.cutouts([made_alerts.confluent(record, 1101)]).faults
    assert fault is not None
    assert (fault.status, "1,050,625 pixels" in fault.message) == (422, True)


def test_a_stamp_that_is_not_gzipped_is_stored_as_it_is(decoder) -> None:
    alert = made_alerts.ztf_alert(cutoutScience=stamp(made_alerts.FITS))
    decoded = decoder.cutouts([alert])
    assert decoded.faults == [None]
    files = {row["kind"]: unpack(row["fits"]) for row in decoded.rows.to_pylist()}
    assert files == dict.fromkeys(("science", "template", "difference"), made_alerts.FITS)


def test_the_programmes_that_are_stored_are_a_setting(tmp_path) -> None:
    decoder = BatchDecoder(
        Framing(16 << 20),
        make_decoder(tmp_path),
        lambda: LATEST,
        SECRET,
        programids=frozenset({1, 2}),
    )
    alerts = [made_alerts.ztf_alert(n, candidate=candidate(programid=n)) for n in (1, 2, 3)]
    assert [fault and fault.status for fault in decoder.cutouts(alerts).faults] == [None, None, 422]
