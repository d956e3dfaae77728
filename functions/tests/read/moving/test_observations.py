"""`/v1/moving/{designation}`: every form of a designation, each format, filters, errors."""

import io
import json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from astropy.io.votable import parse_single_table

from stampede.alerts.columns import MOVING as COLUMNS
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import MOVING
from stampede.store.tables.table import Table
from tests.support.read.read_service import BODY, Reader, serving


def observation(number: int, designation: str = BODY, **changes) -> dict[str, object]:
    return {
        **{"designation": designation, "survey": "lsst", "alert_id": 1000 + number},
        **{"object_id": "77", "mjd": 60000.0 - number, "band": "gr"[number % 2], "ra": 10.0},
        **{"dec": -5.0, "flux": 100.0 * number, "flux_err": 5.0, "phase_angle": 12.5},
        **{"helio_distance": 2.7, "topo_distance": 1.9, "processed_mjd": 60001.0},
        **changes,
    }


def stored() -> MemoryObjects:
    objects = MemoryObjects()
    table = Table(objects, MOVING)
    rows = [observation(number) for number in range(1, 5)]
    rows += [observation(9, "C/2017 K2", survey="ztf", object_id="ZTF18aaaaaaa", programid=1)]
    rows += [observation(10, "45685", survey="ztf", programid=2)]
    table.append(pa.Table.from_pylist(rows, COLUMNS), Coverage.of({("t", 0): [1]}))
    again = observation(1, flux=1.0, processed_mjd=60002.0)
    table.append(pa.Table.from_pylist([again], COLUMNS), Coverage.of({("t", 0): [2]}))
    return objects


@pytest.fixture(scope="module")
def read() -> Iterator[Reader]:
    yield from serving(make_app(Settings(), stored()))


@pytest.mark.parametrize("name", ["2011%20UW158", "2011UW158", "2011_UW158", "K11UF8W"])
def test_every_form_of_a_designation(read: Reader, name: str) -> None:
    got = read(f"/v1/moving/{name}")
    assert got.status == 200, got.data
    found = json.loads(got.data)
    assert found["designation"] == BODY
    assert [row["alert_id"] for row in found["observations"]] == ["1004", "1003", "1002", "1001"]
    assert found["observations"][3]["flux"] == 1.0  # of the later version
    assert found["observations"][0]["phase_angle"] == 12.5
    assert 'filename="2011_UW158.json"' in got.headers["Content-Disposition"]


@pytest.mark.parametrize("name", ["C/2017%20K2", "C%2F2017%20K2", "C_2017_K2", "C/2017K2"])
def test_a_comet(read: Reader, name: str) -> None:
    got = read(f"/v1/moving/{name}")
    assert got.status == 200, got.data
    assert json.loads(got.data)["observations"][0]["object_id"] == "ZTF18aaaaaaa"


def test_each_format_has_the_same_rows(read: Reader) -> None:
    def get(format: str) -> bytes:
        got = read(f"/v1/moving/{BODY.replace(' ', '_')}?format={format}&magnitudes=true")
        assert got.status == 200, got.data
        return got.data

    rows = pyarrow.parquet.read_table(io.BytesIO(get("parquet")))
    assert rows.column_names == [*COLUMNS.names, "mag", "mag_err"]
    assert rows["mag"].to_pylist()[0] == pytest.approx(31.4 - 2.5 * 2.60206)
    assert pa.ipc.open_stream(get("arrow")).read_all().equals(rows)
    csv = pyarrow.csv.read_csv(io.BytesIO(get("csv")))
    assert csv["alert_id"].to_pylist() == rows["alert_id"].to_pylist()
    table = parse_single_table(io.BytesIO(get("votable"))).to_table()
    assert table["alert_id"].tolist() == rows["alert_id"].to_pylist()
    assert str(table["helio_distance"].unit) == "AU"
    assert str(table["phase_angle"].unit) == "deg"


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("band=g", [1004, 1002]),
        ("start=59997&end=59998", [1003, 1002]),
        ("survey=ztf", []),
        ("survey=lsst&band=r", [1003, 1001]),
    ],
)
def test_filters(read: Reader, query: str, expected: list[int]) -> None:
    got = json.loads(read(f"/v1/moving/2011UW158?{query}").data)
    assert [int(row["alert_id"]) for row in got["observations"]] == expected


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/v1/moving/12", 404, "no alert of the body '12' is stored"),
        ("/v1/moving/%20", 400, "say which body"),
        (f"/v1/moving/{'x' * 65}", 400, "say which body"),
        ("/v1/moving/45685?bands=g", 400, "unknown parameter 'bands'"),
        ("/v1/moving/45685?survey=x", 400, "must be one of"),
    ],
)
def test_errors_say_what_is_wrong(read: Reader, path: str, status: int, text: str) -> None:
    got = read(path)
    assert got.status == status
    assert text in got.data.decode()


def test_a_programme_that_may_not_be_given_is_withheld(read: Reader) -> None:
    assert read("/v1/moving/45685").status == 404
    for partner in serving(make_app(Settings(ztf_programids="1,2"), stored())):
        assert partner("/v1/moving/45685").status == 200


def test_an_answer_is_revalidated(read: Reader) -> None:
    tag = read("/v1/moving/2011UW158").headers["ETag"]
    assert read("/v1/moving/2011UW158", headers={"If-None-Match": tag}).status == 304
