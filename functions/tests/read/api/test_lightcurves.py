import csv
import json
import warnings
from io import BytesIO, StringIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from astropy.io import votable
from astropy.io.votable.ucd import check_ucd

from stampede.alerts.columns import DETECTION
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.read.formats.light_curves import MOVING_UCDS, UCDS
from stampede.store.offsets.coverage import Coverage
from tests.support.read.read_service import (
    LSST_OBJECT,
    ZTF_ALERT,
    ZTF_OBJECT,
    point,
    sample_store,
    serving,
)

LIGHT_CURVE = f"/v1/objects/{ZTF_OBJECT}/lightcurve"
LSST = f"/v1/objects/{LSST_OBJECT}/lightcurve"


def times(got) -> list[float]:
    return [row["mjd"] for row in got.json()["detections"]]


def test_a_light_curve_is_json_sorted_by_time(read):
    got = read(LIGHT_CURVE)
    assert got.status == 200
    assert got.headers["content-type"] == "application/json"
    curve = json.loads(got.data, parse_constant=pytest.fail)
    assert curve["object_id"] == ZTF_OBJECT
    assert curve["survey"] == "ztf"
    assert times(got) == [59398.0, 59399.0, 59400.0, 59401.0]
    limit, _, detection, forced = curve["detections"]
    assert limit["flux"] is None
    assert limit["limit"] is True
    assert forced["flux"] is None  # NaN in the store
    assert detection == {
        "forced": False,
        "limit": False,
        "source_id": str(ZTF_ALERT),
        "mjd": 59400.0,
        "band": "r",
        "ra": 10.0,
        "dec": -5.0,
        "flux": 1234.5,
        "flux_err": 100.1,  # not 100.0999984741211
        "total_flux": None,
        "total_flux_err": None,
        "reliability": 0.9,
        "visit": "12",
        "detector": 3,
        "withdrawn": False,
        "processed_mjd": 59400.0,
        "flags": None,
        "procstatus": None,
        "limiting_mag": 20.5,
        "rb": 0.6,
        "programid": 1,
        "moved": None,
    }


def test_ids_that_a_double_cannot_hold_are_exact(read):
    assert read(LSST).json()["detections"][0]["source_id"] == "9007199254740993"


SELECTIONS = {
    "band=g": [59398.0, 59399.0],
    "band=g,r": [59398.0, 59399.0, 59400.0, 59401.0],
    "band=g&band=z": [59398.0, 59399.0],
    "band=z": [],
    "forced=true": [59401.0],
    "forced=false": [59398.0, 59399.0, 59400.0],
    "start=59400": [59400.0, 59401.0],
    "end=59399": [59398.0, 59399.0],
    "start=59399&end=59400": [59399.0, 59400.0],
    "withdrawn=true": [59398.0, 59399.0, 59400.0, 59401.0, 59402.0],
}


@pytest.mark.parametrize(("query", "expected"), SELECTIONS.items(), ids=SELECTIONS)
def test_points_can_be_filtered(read, query, expected):
    assert times(read(f"{LIGHT_CURVE}?{query}")) == expected


def test_magnitudes_are_added_on_request(read):
    rows = read(f"{LIGHT_CURVE}?magnitudes=true").json()["detections"]
    assert [row["mag"] for row in rows] == [None, None, pytest.approx(23.6713, abs=1e-4), None]
    assert rows[2]["mag_err"] == pytest.approx(1.0857 * 100.1 / 1234.5, rel=1e-4)
    # The same flux by another formula: 0 mag is 3631 Jy.
    assert 3631e9 * 10 ** (-0.4 * rows[2]["mag"]) == pytest.approx(1234.5, rel=1e-4)


def test_csv(read):
    got = read(f"{LIGHT_CURVE}?format=csv")
    assert got.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    rows = list(csv.DictReader(StringIO(got.data.decode())))
    assert list(rows[0]) == DETECTION.names
    assert [row["flux"] for row in rows] == ["", "-50", "1234.5", ""]
    assert rows[2]["source_id"] == str(ZTF_ALERT)


def test_parquet_and_arrow_hold_the_same_table_with_its_units(read):
    parquet = pq.read_table(BytesIO(read(f"{LIGHT_CURVE}?format=parquet").data))
    arrow = pa.ipc.open_stream(read(f"{LIGHT_CURVE}?format=arrow").data).read_all()
    assert parquet.schema.equals(DETECTION)
    assert parquet.schema.field("flux").metadata[b"unit"] == b"nJy"
    assert arrow.schema.field("flux").metadata[b"unit"] == b"nJy"
    assert arrow["mjd"].to_pylist() == [59398.0, 59399.0, 59400.0, 59401.0]
    assert parquet.to_pydict().keys() == arrow.to_pydict().keys()
    assert parquet.drop_columns("flux") == arrow.drop_columns("flux")


def test_votable_is_valid_and_describes_its_axes(read):
    got = read(f"{LSST}?format=votable&magnitudes=true")
    assert got.headers["content-type"] == "application/x-votable+xml"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        file = votable.parse(BytesIO(got.data), verify="exception")
    resource, service = file.resources
    assert (resource.type, service.utype) == ("results", "adhoc:service")
    (time,) = resource.time_systems
    assert (time.timescale, time.timeorigin) == ("TAI", "MJD-origin")
    (table,) = resource.tables
    fields = {field.name: field for field in table.fields}
    assert list(fields) == [*DETECTION.names, "mag", "mag_err"]
    assert str(fields["flux"].unit) == "nJy"
    assert fields["mjd"].ref == time.ID
    assert fields["ra"].ref == resource.coordinate_systems[0].ID
    assert str(fields["flux"].description) == DETECTION.field("flux").metadata[b"doc"].decode()
    rows = table.to_table()
    assert rows["source_id"].tolist() == [9007199254740993, 170239611403501616]
    assert rows["band"].tolist() == ["u", "y"]
    assert rows["forced"].tolist() == [True, False]
    assert rows["total_flux"].mask.tolist() == [True, False]
    assert rows["total_flux"][1] == 2000.0


def test_every_ucd_is_valid():
    ucds = {*UCDS.values(), *MOVING_UCDS.values()}
    wrong = [ucd for ucd in ucds if not check_ucd(ucd, check_controlled_vocabulary=True)]
    assert wrong == []


CHOICES = {
    "nothing": ("", {}, "application/json"),
    "a browser": ("", {"Accept": "text/html,application/xml;q=0.9,*/*;q=0.8"}, "application/json"),
    "Accept": ("", {"Accept": "text/csv"}, "text/csv"),
    "the best": (
        "",
        {"Accept": "text/csv;q=0.5, application/x-votable+xml;q=0.9"},
        "application/x-votable+xml",
    ),
    "empty": ("", {"Accept": ""}, "application/json"),
    "a parameter wins": ("?format=csv", {"Accept": "image/png"}, "text/csv"),
    "not this": ("", {"Accept": "application/json;q=0, text/*"}, "text/csv"),
    "DALI": ("?RESPONSEFORMAT=votable", {}, "application/x-votable+xml"),
    "DALI, any case": ("?responseFormat=VOTable", {}, "application/x-votable+xml"),
    "DALI, a media type": (
        "?RESPONSEFORMAT=application/vnd.apache.parquet",
        {},
        "application/vnd.apache.parquet",
    ),
    "the query first": (
        "?format=arrow",
        {"Accept": "text/csv"},
        "application/vnd.apache.arrow.stream",
    ),
}


@pytest.mark.parametrize(("query", "headers", "expected"), CHOICES.values(), ids=CHOICES)
def test_content_negotiation(read, query, headers, expected):
    got = read(LIGHT_CURVE + query, headers=headers)
    assert got.status == 200
    assert got.headers["content-type"].partition(";")[0] == expected
    assert got.headers["vary"] == "Accept"


def test_an_unchanged_light_curve_is_a_304(read):
    got = read(LIGHT_CURVE)
    assert got.headers["cache-control"] == "no-cache"
    assert read(LIGHT_CURVE, headers={"If-None-Match": got.headers["etag"]}).status == 304


PROBLEMS = {
    "/v1/objects/ZTF99nothing/lightcurve": (404, "unknown-object", None),
    "/v1/objects/%3Cscript%3E/lightcurve": (400, "bad-parameter", "object_id"),
    f"/v1/objects/{'9' * 65}/lightcurve": (400, "bad-parameter", "object_id"),
    f"{LIGHT_CURVE}?format=xml": (400, "bad-parameter", "format"),
    f"{LIGHT_CURVE}?RESPONSEFORMAT=xml": (400, "bad-parameter", "RESPONSEFORMAT"),
    f"{LIGHT_CURVE}?band=ultraviolet": (400, "bad-parameter", "band"),
    f"{LIGHT_CURVE}?band=": (400, "bad-parameter", "band"),
    f"{LIGHT_CURVE}?forced=perhaps": (400, "bad-parameter", "forced"),
    f"{LIGHT_CURVE}?start=yesterday": (400, "bad-parameter", "start"),
    f"{LIGHT_CURVE}?end=inf": (400, "bad-parameter", "end"),
    f"{LIGHT_CURVE}?withdrawn=": (400, "bad-parameter", "withdrawn"),
    f"{LIGHT_CURVE}?magnitudes=2": (400, "bad-parameter", "magnitudes"),
}


@pytest.mark.parametrize(("path", "expected"), PROBLEMS.items(), ids=PROBLEMS)
def test_bad_requests_are_problems(read, path, expected):
    got = read(path)
    status, name, parameter = expected
    assert got.status == status
    assert got.headers["content-type"] == "application/problem+json"
    assert got.json()["type"] == f"urn:stampede:problem:{name}"
    assert got.json().get("parameter") == parameter


def test_a_light_curve_that_was_sent_before_is_kept_until_its_rows_change() -> None:
    objects = sample_store()
    app = make_app(Settings(refresh_seconds=1000), objects)
    kept, table = app.state.service.light_curves, app.state.service.lookup.detections.table
    for read in serving(app):
        read(LIGHT_CURVE)  # from now on its rows are in memory
        first = read(LIGHT_CURVE)
        size = kept.bytes
        assert size > len(first.data)
        again = read(LIGHT_CURVE)
        assert (again.data, again.headers["etag"]) == (first.data, first.headers["etag"])
        assert kept.bytes == size
        others = [f"{LIGHT_CURVE}?{query}" for query in ("band=g", "format=csv", "magnitudes=1")]
        bodies = {read(path).data for path in (LIGHT_CURVE, *others) for _ in range(2)}
        assert len(bodies) == 1 + len(others)

        new = pa.Table.from_pylist([point(ZTF_OBJECT, "ztf", 9, 59397.5)], DETECTION)
        table.append(new, Coverage.of({("ztf", 0): [7]}))
        table.refresh()
        for _ in range(3):
            assert times(read(LIGHT_CURVE)) == [59397.5, *times(first)]
