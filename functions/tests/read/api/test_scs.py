"""The Simple Cone Search and the VOTable, read by pyvo and astropy as they are."""

import io
from collections.abc import Iterator

import pyarrow as pa
import pytest
import pyvo
from astropy.io.votable import parse, parse_single_table, validate
from pyarrow.csv import read_csv
from pyarrow.parquet import read_table
from pyvo.dal.exceptions import DALQueryError

from stampede.config.settings import Settings
from stampede.lookup import cone_search
from stampede.read.app import make_app
from tests.read.api.test_cone import CENTRE, sample, store
from tests.support.read.read_service import Reader, serving


@pytest.fixture(scope="module")
def read() -> Iterator[Reader]:
    yield from serving(make_app(Settings(), store(sample())))


def test_pyvo_finds_what_the_cone_search_finds(read: Reader) -> None:
    service = pyvo.dal.SCSService(f"{read.url}/v1/scs?")
    found = service.search(pos=(CENTRE.ra, CENTRE.dec), radius=5 / 3600)
    assert [record.id for record in found] == ["ZTF21near", "ZTF21next"]
    assert found[0].pos.ra.deg == pytest.approx(CENTRE.ra)
    own = read(f"/v1/cone?ra={CENTRE.ra}&dec={CENTRE.dec}&radius=5").json()["objects"]
    assert found["distance"].tolist() == [each["distance"] for each in own]
    assert found["last_mjd"].tolist() == [59010.0, 59005.0]


def test_pyvo_raises_what_the_error_says(read: Reader) -> None:
    service = pyvo.dal.SCSService(f"{read.url}/v1/scs?")
    with pytest.raises(DALQueryError, match="SR from 0 to 180"):
        service.search(pos=(10.0, 10.0), radius=181.0)


def test_names_in_any_case_and_others_are_ignored(read: Reader) -> None:
    response = read(f"/v1/scs?ra={CENTRE.ra}&Dec={CENTRE.dec}&sR=0.002&VERB=3&other=7")
    assert len(parse_single_table(io.BytesIO(response.data)).to_table()) == 2


def test_a_radius_of_zero_asks_for_the_columns(read: Reader) -> None:
    table = parse_single_table(io.BytesIO(read("/v1/scs?RA=1&DEC=1&SR=0").data))
    ucds = {field.ucd: field.name for field in table.fields}
    assert ucds["ID_MAIN"] == "object_id"
    assert (ucds["POS_EQ_RA_MAIN"], ucds["POS_EQ_DEC_MAIN"]) == ("ra", "dec")
    assert len(table.array) == 0


@pytest.mark.parametrize(
    ("most", "names", "statuses"),
    [
        (0, [], ["OK", "OVERFLOW"]),
        (1, ["ZTF21near"], ["OK", "OVERFLOW"]),
        (2, ["ZTF21near", "ZTF21next"], ["OK", "OVERFLOW"]),
        (3, ["ZTF21near", "ZTF21next", "ZTF21far"], ["OK"]),
        (10**17, ["ZTF21near", "ZTF21next", "ZTF21far"], ["OK"]),
    ],
)
def test_maxrec_is_the_most_rows(
    read: Reader, most: int, names: list[str], statuses: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a response that is a stream."""
    for rows in (cone_search.MOST_ROWS, 0):
        monkeypatch.setattr(cone_search, "MOST_ROWS", rows)
        response = read(f"/v1/scs?RA={CENTRE.ra}&DEC={CENTRE.dec}&SR=1&maxRec={most}")
        resource, service = parse(io.BytesIO(response.data)).resources
        assert (resource.type, service.type, service.tables) == ("results", "meta", [])
        (table,) = resource.tables
        assert table.array["object_id"].tolist() == names
        assert [info.value for info in resource.infos] == statuses


def test_pyvo_gets_as_many_rows_as_it_wants(read: Reader) -> None:
    service = pyvo.dal.SCSService(f"{read.url}/v1/scs?")
    query = service.create_query(pos=(CENTRE.ra, CENTRE.dec), radius=1)
    query["MAXREC"] = 1
    assert [record.id for record in query.execute()] == ["ZTF21near"]


@pytest.mark.parametrize(
    "query",
    [
        *("", "RA=1&DEC=1", "RA=x&DEC=1&SR=1", "RA=1&DEC=nan&SR=1"),
        *(f"RA=1&DEC=1&SR=1&MAXREC={wrong}" for wrong in ("-1", "many", "1.5", "", "9" * 19)),
    ],
)
def test_an_error_is_a_votable(read: Reader, query: str) -> None:
    response = read(f"/v1/scs?{query}")
    assert (response.status, response.headers["Content-Type"]) == (200, "application/x-votable+xml")
    file = parse(io.BytesIO(response.data), verify="exception")
    assert [info.name for info in file.infos] == ["Error"]
    assert [info.value for info in file.resources[0].infos] == ["ERROR"]


@pytest.mark.parametrize("format", ["csv", "parquet", "votable"])
def test_every_format_has_the_same_rows(read: Reader, format: str) -> None:
    query = f"/v1/cone?ra={CENTRE.ra}&dec={CENTRE.dec}&radius=1deg"
    rows = read(query).json()["objects"]
    response = read(f"{query}&format={format}")
    if format == "votable":
        assert validate(io.BytesIO(response.data), output=None)
        columns = parse_single_table(io.BytesIO(response.data)).to_table()
        table = pa.table({name: columns[name].tolist() for name in columns.colnames})
    else:
        parse = {"csv": read_csv, "parquet": read_table}[format]
        table = parse(io.BytesIO(response.data))
    assert len(rows) == 3
    assert table.to_pylist() == rows


def test_the_columns_are_those_that_the_standard_demands(read: Reader) -> None:
    """Simple Cone Search 1.03, 2.2: one table, one field of each of three UCDs, of its type."""
    for query in ("SR=1", "SR=0", "SR=1&MAXREC=0", "SR=1&VERB=1", "SR=1&VERB=3"):
        data = read(f"/v1/scs?RA={CENTRE.ra}&DEC={CENTRE.dec}&{query}").data
        results, service = parse(io.BytesIO(data)).resources
        assert (results.type, service.type) == ("results", "meta")
        (table,) = results.tables
        types = {
            **{"ID_MAIN": ("char", "*"), "POS_EQ_RA_MAIN": ("double", None)},
            "POS_EQ_DEC_MAIN": ("double", None),
        }
        for ucd, (datatype, size) in types.items():
            (field,) = (each for each in table.fields if each.ucd == ucd)
            assert (field.datatype, field.arraysize) == (datatype, size)
        assert all(field.description and field.ucd and field.name for field in table.fields)
        ids = table.array["object_id"].tolist()
        assert len({*ids}) == len(ids)


@pytest.mark.parametrize("wrong", ["DEC=91", "DEC=-90.1", "RA=361", "RA=-1", "SR=181", "SR=-1"])
def test_a_number_out_of_range_is_an_error(read: Reader, wrong: str) -> None:
    """As pyvo finds it: an INFO named Error below the root."""
    query = {"RA": "1", "DEC": "1", "SR": "1"} | dict([wrong.split("=")])
    form = "&".join(f"{name}={value}" for name, value in query.items())
    with pytest.raises(DALQueryError, match="RA must be from 0 to 360"):
        pyvo.dal.scs.SCSResults.from_result_url(f"{read.url}/v1/scs?{form}")
