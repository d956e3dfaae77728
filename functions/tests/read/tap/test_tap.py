"""TAP by pyvo on a real server: queries over objects, detections, alerts and nights."""

import io
from collections.abc import Iterator
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pytest
import pyvo
from astropy.io.votable import parse
from astropy.table import Table as AstropyTable
from pyarrow.csv import read_csv
from pyarrow.parquet import read_table
from pyvo.dal.exceptions import DALQueryError

from stampede.alerts.columns import DETECTION
from stampede.alerts.positions import positions_of
from stampede.config.settings import Settings
from stampede.lookup.errors import BadParameter
from stampede.read.app import make_app
from stampede.read.tap import sources
from stampede.read.tap.uploads import read_votable
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import POSITIONS
from stampede.store.tables.table import Table
from tests.support.read.read_service import (
    BODY,
    ZTF_ALERT,
    Reader,
    cutout,
    fill,
    observe,
    point,
    serving,
)

OBJECTS, POINTS = 600, 5
RNG = np.random.default_rng(7)
RA, DEC = 150 + RNG.normal(0, 1, OBJECTS), 2 + RNG.normal(0, 1, OBJECTS)


def name(number: int) -> str:
    return f"ZTF21a{number:05}"


def sample() -> MemoryObjects:
    objects = MemoryObjects()
    points = [
        point(
            name(number),
            "ztf",
            1 + number * POINTS + epoch,
            59000.0 + epoch,
            ra=float(RA[number]),
            dec=float(DEC[number]),
            band="gr"[epoch % 2],
            flux=100.0 + number,
            processed_mjd=59000.0 + epoch,
        )
        for number in range(OBJECTS)
        for epoch in range(POINTS)
    ]
    images = [
        cutout(1 + number * POINTS + epoch, "ztf", kind, name(number), 59000.0 + epoch, b"x")
        for number in range(40)
        for epoch in (3, 4)
        for kind in ("science", "template")
    ]
    coverage = Coverage.of({("ztf", 0): [1]})
    fill(objects, images, points, coverage)
    observe(objects, coverage)
    # Again, another version: the later one counts.
    again = {**points[0], "flux": 5.0, "processed_mjd": 60000.0}
    Table(objects, POSITIONS).append(
        positions_of(pa.Table.from_pylist(points, DETECTION)), coverage
    )
    fill(objects, images[:2], [again], Coverage.of({("ztf", 0): [2]}))
    return objects


@pytest.fixture(scope="module")
def read() -> Iterator[Reader]:
    yield from serving(make_app(Settings(tap_seconds=20.0), sample()))


@pytest.fixture(scope="module")
def tap(read: Reader) -> pyvo.dal.TAPService:
    return pyvo.dal.TAPService(f"{read.url}/tap")


def test_pyvo_gets_the_first_rows(tap: pyvo.dal.TAPService) -> None:
    for table in ("objects", "stampede.detections", "alerts", "moving", "nights"):
        found = tap.search(f"SELECT TOP 5 * FROM {table}")
        assert 1 <= len(found) <= 5
    found = tap.run_sync("SELECT TOP 5 object_id, ra FROM objects WHERE ra > 151")
    assert len(found) == 5
    assert (found["ra"] > 151).all()
    assert found.fielddescs[1].unit == "deg"
    assert found.fielddescs[1].ucd == "pos.eq.ra;meta.main"


def test_pyvo_knows_the_tables(read: Reader, tap: pyvo.dal.TAPService) -> None:
    assert set(tap.tables.keys()) >= {"stampede.objects", "tap_schema.columns"}
    columns = {column.name for column in tap.tables["stampede.detections"].columns}
    assert {"object_id", "flux", '"limit"'} <= columns
    assert b"<available>true" in read("/tap/availability").data
    found = tap.search(
        "SELECT column_name FROM TAP_SCHEMA.columns WHERE table_name='stampede.nights'"
    )
    assert found["column_name"].tolist() == ["night", "survey", "alerts", "exact"]
    assert tap.maxrec == Settings().tap_rows


def around(ra: float, dec: float, radius: float) -> set[str]:
    """Brute force: the objects of the sample within so many degrees."""
    east, there, here = np.radians(RA - ra), np.radians(DEC), np.radians(dec)
    haversine = np.sin((there - here) / 2) ** 2
    haversine = haversine + np.cos(here) * np.cos(there) * np.sin(east / 2) ** 2
    away = np.degrees(2 * np.arcsin(np.sqrt(haversine)))
    return {name(number) for number in np.flatnonzero(away <= radius).tolist()}


@pytest.mark.parametrize(
    "condition",
    [
        "1=CONTAINS(POINT('ICRS', ra, dec), CIRCLE('ICRS', 150.2, 2.1, 0.4))",
        "CONTAINS(POINT(o.ra, o.dec), CIRCLE(POINT(150.2, 2.1), 0.4)) = 1",
        "DISTANCE(POINT(ra, dec), POINT(150.2, 2.1)) <= 0.4",
        "0.4 > DISTANCE(150.2, 2.1, ra, dec)",
        "0 = CONTAINS(POINT(ra, dec), CIRCLE(150.2, 2.1, 0.4)) AND ra < 0 OR "
        "CONTAINS(POINT(ra, dec), CIRCLE(150.2, 2.1, 0.4)) > 0",
    ],
)
def test_a_cone_in_adql_finds_what_the_cone_search_finds(
    read: Reader, tap: pyvo.dal.TAPService, condition: str
) -> None:
    found = tap.search(f"SELECT o.object_id, detections FROM objects AS o WHERE {condition}")
    own = read("/v1/cone?ra=150.2&dec=2.1&radius=0.4deg").json()["objects"]
    ids = {each["object_id"] for each in own}
    assert set(found["object_id"]) == ids == around(150.2, 2.1, 0.4)
    assert set(found["detections"]) == {POINTS}


def test_detections_have_one_version_and_join_with_objects(tap: pyvo.dal.TAPService) -> None:
    found = tap.search(f"SELECT flux FROM detections WHERE object_id = '{name(0)}' ORDER BY mjd")
    assert found["flux"].tolist() == [5.0, *[100.0] * (POINTS - 1)]
    found = tap.search(
        "SELECT o.object_id, COUNT(*) AS n, MAX(d.flux) AS brightest FROM objects o "
        "JOIN detections d ON o.object_id = d.object_id "
        "WHERE 1=CONTAINS(POINT('', o.ra, o.dec), CIRCLE('', 150, 2, 0.5)) "
        "AND d.band = 'r' GROUP BY o.object_id HAVING COUNT(*) > 1 ORDER BY brightest DESC"
    )
    assert set(found["object_id"]) == around(150, 2, 0.5)
    assert set(found["n"]) == {2}
    assert (np.diff(found["brightest"]) <= 0).all()


def test_alerts_by_id_object_and_night(tap: pyvo.dal.TAPService) -> None:
    found = tap.search("SELECT * FROM alerts WHERE alert_id IN (4, 5, 999999)")
    assert found["alert_id"].tolist() == [4, 5]
    assert set(found["cutouts"]) == {2}
    found = tap.search(
        "SELECT a.alert_id FROM alerts a JOIN detections d ON a.alert_id = d.source_id "
        f"WHERE d.object_id IN ('{name(0)}', '{name(1)}') ORDER BY a.alert_id"
    )
    assert found["alert_id"].tolist() == [4, 5, 9, 10]
    found = tap.search(f"SELECT alert_id FROM alerts WHERE object_id='{name(3)}'")
    assert sorted(found["alert_id"].tolist()) == [19, 20]
    found = tap.search("SELECT COUNT(*) AS n FROM alerts WHERE alert_id BETWEEN 1 AND 20")
    assert found["n"].tolist() == [8]
    found = tap.search("SELECT night, alerts FROM nights WHERE night >= 59000 ORDER BY night")
    assert found["night"].tolist()[-1] == 59004


def test_a_moving_object_by_its_designation(tap: pyvo.dal.TAPService) -> None:
    found = tap.search(f"SELECT * FROM stampede.moving WHERE designation = '{BODY}'").to_table()
    found.sort("alert_id")
    assert found["alert_id"].tolist() == [11, 12, ZTF_ALERT]
    assert found["phase_angle"].tolist() == [12.5, 13.0, None]
    assert (found["helio_distance"].unit, found["phase_angle"].unit) == ("AU", "deg")
    reduced = tap.search(
        "SELECT 31.4 - 2.5 * LOG10(flux) - 5 * LOG10(helio_distance * topo_distance) AS h, "
        f"\"offset\" FROM moving WHERE designation = '{BODY}' AND alert_id = 11"
    )
    assert reduced["h"].tolist() == [pytest.approx(17.9638, abs=1e-3)]
    columns = tap.tables["stampede.moving"].columns
    assert '"offset"' in {column.name for column in columns}
    indexed = tap.search(
        "SELECT column_name FROM TAP_SCHEMA.columns WHERE table_name = 'stampede.moving' "
        "AND indexed = 1"
    )
    assert indexed["column_name"].tolist() == ["designation"]
    keys = tap.search("SELECT * FROM TAP_SCHEMA.keys WHERE from_table = 'stampede.moving'")
    assert {*keys["target_table"]} == {"stampede.alerts", "stampede.objects"}
    assert len(tap.search("SELECT * FROM moving WHERE designation = '2011UW158'")) == 0


@pytest.mark.parametrize(
    ("select", "value"),
    [
        ("MOD(7, 4)", 3),
        ("LOG(EXP(2))", 2.0),
        ("LOG10(1000)", 3.0),
        ("POWER(2, 10) + SQRT(16)", 1028.0),
        ("ROUND(3.14159, 2)", 3.14),
        ("TRUNCATE(3.99)", 3.0),
        ("CEILING(1.2) - FLOOR(1.8)", 1.0),
        ("DEGREES(PI())", 180.0),
        ("ATAN2(0, -1)", np.pi),
        ("COALESCE(NULL, 4)", 4),
        ("CAST('12' AS INTEGER)", 12),
        ("CASE WHEN ra > 1000 THEN 1 ELSE 2 END", 2),
        ("DISTANCE(POINT('ICRS', 10, 0), POINT('ICRS', 10, 1))", 1.0),
        ("COORD2(POINT(1, 2))", 2),
        ("'a' || UPPER('b')", "aB"),
        ("7 / 2", 3),
        ("-2 * 3", -6),
    ],
)
def test_functions_are_those_of_adql(tap: pyvo.dal.TAPService, select: str, value: object) -> None:
    found = tap.search(f"SELECT TOP 1 {select} AS x FROM objects")
    got = found["x"][0]
    assert got == value if isinstance(value, str) else float(got) == pytest.approx(value)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT DISTINCT band FROM detections ORDER BY 1",
        f"WITH t AS (SELECT * FROM detections WHERE object_id='{name(1)}') "
        "SELECT DISTINCT band FROM t ORDER BY band",
        "SELECT s.b FROM (SELECT DISTINCT band AS b FROM detections "
        f"WHERE object_id='{name(1)}') AS s ORDER BY s.b",
        f"SELECT band FROM detections WHERE object_id='{name(1)}' UNION "
        f"SELECT band FROM detections WHERE object_id='{name(2)}' ORDER BY band",
        "SELECT DISTINCT d.band FROM detections d WHERE d.object_id IN "
        "(SELECT object_id FROM objects WHERE ra > 150) ORDER BY d.band",
    ],
)
def test_subqueries_and_sets(tap: pyvo.dal.TAPService, query: str) -> None:
    found = tap.search(query)
    assert found.to_table()[found.fieldnames[0]].tolist() == ["g", "r"]


def test_maxrec_marks_an_overflow(read: Reader, tap: pyvo.dal.TAPService) -> None:
    for most, statuses in ((7, ["OK", "OVERFLOW"]), (0, ["OK", "OVERFLOW"]), (OBJECTS, ["OK"])):
        response = read(f"/tap/sync?LANG=ADQL&query=SELECT+object_id+FROM+objects&MAXREC={most}")
        (resource,) = parse(io.BytesIO(response.data)).resources
        assert len(resource.tables[0].array) == most
        assert [info.value for info in resource.infos] == statuses
    csv = read("/tap/sync?LANG=ADQL&QUERY=SELECT+TOP+9+object_id+FROM+objects&MAXREC=3&FORMAT=csv")
    assert csv.headers["Stampede-Overflow"] == "true"
    assert read_csv(io.BytesIO(csv.data)).num_rows == 3


@pytest.mark.parametrize(("top", "most"), [(70, 1000), (70, 30), (1000, 1000)])
def test_chunks_give_no_more_rows_than_top(
    read: Reader, monkeypatch: pytest.MonkeyPatch, top: int, most: int
) -> None:
    monkeypatch.setattr(sources, "SOME", 7)
    query = f"SELECT+TOP+{top}+object_id,+mjd+FROM+detections+WHERE+mjd+>+59003.5+AND+ra+>+150"
    response = read(f"/tap/sync?LANG=ADQL&QUERY={query}&MAXREC={most}")
    (resource,) = parse(io.BytesIO(response.data)).resources
    wanted = sorted(name(number) for number in np.flatnonzero(RA > 150).tolist())
    found = resource.tables[0].array["object_id"].tolist()
    assert found == wanted[: min(top, most)]
    overflow = [info.value for info in resource.infos] == ["OK", "OVERFLOW"]
    assert overflow == (most < min(top, len(wanted)))


def test_documents_are_valid(read: Reader) -> None:
    for query in ("SELECT TOP 2 * FROM detections", "SELECT nothing FROM objects"):
        response = read("/tap/sync", "POST", urlencode({"LANG": "ADQL", "QUERY": query}).encode())
        votable = parse(io.BytesIO(response.data), verify="exception")
        assert {info.name for info in votable.resources[0].infos} == {"QUERY_STATUS"}


def test_names_of_columns_are_those_of_the_query(read: Reader) -> None:
    query = (
        'SELECT TOP 2 ra AS "a<b&\'c", \'d<e&\' AS "x""y", NULL AS n, ra + 1, ABS(dec), o.dec '
        "FROM objects AS o"
    )
    response = read("/tap/sync", "POST", urlencode({"LANG": "ADQL", "QUERY": query}).encode())
    table = parse(io.BytesIO(response.data)).get_first_table()
    assert [field.name for field in table.fields] == [
        *("a<b&'c", 'x"y', "n", "column_4", "column_5", "dec"),
    ]
    assert table.array[table.array.dtype.names[1]][0] == "d<e&"
    assert table.fields[0].unit == "deg"
    counted = "SELECT COUNT(*), MAX(ra), MIN(ra), COUNT(dec) FROM objects"
    response = read("/tap/sync", "POST", urlencode({"LANG": "ADQL", "QUERY": counted}).encode())
    table = parse(io.BytesIO(response.data)).get_first_table()
    assert [field.name for field in table.fields] == ["count", "max", "min", "count_4"]


def test_other_formats(read: Reader) -> None:
    query = "/tap/sync?LANG=ADQL&QUERY=SELECT+TOP+3+object_id,+ra+FROM+objects&RESPONSEFORMAT="
    table = read_table(io.BytesIO(read(query + "parquet").data))
    assert table.column_names == ["object_id", "ra"]
    arrow = pa.ipc.open_stream(read(query + "arrow").data).read_all()
    assert arrow.num_rows == 3
    assert read(query + "fits").status == 400


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT object_id FROM stars", "there is no table stars: there are objects"),
        ("SELECT nothing FROM objects", "nothing"),
        ("SELECT FROM", "this is no ADQL"),
        ("SELECTED object_id FROM objects", "this is no ADQL, line 1"),
        ("DROP TABLE objects", "a query begins with SELECT"),
        ("SELECT ra FROM objects; SELECT dec FROM objects", "one query at a time"),
        ("SELECT TOP 1 SOUNDEX(object_id) FROM objects", "SOUNDEX is not in the ADQL"),
        ("SELECT REGEXP_REPLACE(object_id, '(a+)+', '') FROM objects", "is not in the ADQL"),
        ("SELECT * FROM read_parquet('/etc/passwd')", "is not in the ADQL"),
        ("SELECT * FROM '/etc/passwd'", "there is no table /etc/passwd"),
        ('SELECT * FROM "s3://bucket/tables/"', "there is no table s3://bucket"),
        ("SELECT * FROM information_schema.tables", "there is no table information_schema.tables"),
        ("SELECT pack FROM alerts", "pack"),
        (
            "WITH RECURSIVE t AS (SELECT 1 AS a UNION ALL SELECT a+1 FROM t) SELECT * FROM t",
            "RECURS",
        ),
        ("SELECT " + "(" * 2000 + "1" + ")" * 2000 + " FROM objects", "nested"),
        (
            "SELECT TOP 1 BOX('ICRS', 1, 2, 3, 4) FROM objects",
            "the function BOX is not in the ADQL",
        ),
        ("SELECT TOP 1 POINT(ra, dec) FROM objects", "POINT stands only in"),
        (
            "SELECT * FROM objects WHERE 1=CONTAINS(POINT('GALACTIC', ra, dec), CIRCLE(1,2,3))",
            "ICRS",
        ),
        ("SELECT * FROM objects WHERE 1=CONTAINS(POINT(ra,dec), CIRCLE(1,95,3))", "dec from -90"),
        ("SELECT ROW_NUMBER() OVER (ORDER BY ra) FROM objects", "is not in the ADQL"),
        ("SELECT * FROM objects TABLESAMPLE (10 PERCENT)", "is not in the ADQL"),
        ("SELECT ra::text FROM objects LIMIT 5", "is not in"),
        ("SELECT * FROM tap_upload.mine", "no table tap_upload.mine came with the query"),
    ],
)
def test_what_is_not_there_is_refused_by_name(
    read: Reader, tap: pyvo.dal.TAPService, query: str, message: str
) -> None:
    with pytest.raises(DALQueryError) as error:
        tap.search(query)
    assert message.lower() in str(error.value).lower()
    assert "t0" not in str(error.value)


def test_uploaded_positions_are_matched_as_the_cross_match_does(
    read: Reader, tap: pyvo.dal.TAPService
) -> None:
    offsets = RNG.normal(0, 5 / 3600, 300)
    ra, dec = RA[:300] + offsets, DEC[:300] - offsets
    mine = AstropyTable({"name": [f"n{number}" for number in range(300)], "ra": ra, "dec": dec})
    body = "\n".join(f"{a!r},{b!r}" for a, b in zip(ra.tolist(), dec.tolist(), strict=True))
    own = read_csv(
        io.BytesIO(read("/v1/cone?radius=8&format=csv", "POST", body.encode()).data)
    ).to_pylist()
    expected = {(f"n{each['position']}", each["object_id"]) for each in own}
    assert 50 < len(expected) < 300
    for condition in (
        "1=CONTAINS(POINT(o.ra, o.dec), CIRCLE(m.ra, m.dec, 0.0022222222222))",
        "DISTANCE(POINT(m.ra, m.dec), POINT(o.ra, o.dec)) < 0.0022222222222",
    ):
        found = tap.run_sync(
            "SELECT m.*, o.object_id, DISTANCE(POINT(m.ra, m.dec), POINT(o.ra, o.dec)) AS away "
            f"FROM tap_upload.mine AS m JOIN objects AS o ON {condition}",
            uploads={"mine": mine},
        )
        assert found.fieldnames == ("name", "ra", "dec", "object_id", "away")
        assert set(zip(found["name"], found["object_id"], strict=True)) == expected
        away = {(each["name"], each["object_id"]): each["away"] * 3600 for each in found}
        for each in own:
            key = (f"n{each['position']}", each["object_id"])
            assert away[key] == pytest.approx(each["distance"], abs=1e-6)


def test_uploaded_names_are_looked_up(tap: pyvo.dal.TAPService) -> None:
    mine = AstropyTable({"id": [name(3), name(4), "none"]})
    found = tap.run_sync(
        "SELECT m.id, COUNT(d.source_id) AS n FROM tap_upload.mine m "
        "LEFT JOIN detections d ON d.object_id = m.id GROUP BY m.id ORDER BY m.id",
        uploads={"mine": mine},
    )
    assert found["id"].tolist() == [name(3), name(4), "none"]
    assert found["n"].tolist() == [POINTS, POINTS, 0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"no XML", "no XML"),
        (b"<VOTABLE/>", "no TABLE with TABLEDATA"),
        (b"<!DOCTYPE a [<!ENTITY b 'c'>]><VOTABLE/>", "no DOCTYPE"),
        (b'<TABLE><FIELD name="a" datatype="int"/><DATA><BINARY/></DATA></TABLE>', "not BINARY"),
        (
            b'<TABLE><FIELD name="a" datatype="int"/><DATA><TABLEDATA><TR><TD>x</TD></TR>'
            b"</TABLEDATA></DATA></TABLE>",
            "is not what its FIELD says",
        ),
        (
            b'<TABLE><FIELD name="a" datatype="int"/><DATA><TABLEDATA><TR><TD>99999999999</TD></TR>'
            b"</TABLEDATA></DATA></TABLE>",
            "a number of a is too large",
        ),
    ],
)
def test_a_wrong_upload_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(BadParameter, match=message):
        read_votable(data)
