"""Which rows a query reads: a bound has every row that the query may want."""

import pyarrow as pa
import pytest

from stampede.read.tap.errors import BadAdql
from stampede.read.tap.plan import Bound, plan

CONE = Bound("cone", values=(10.0, -5.5, 0.1))
INSIDE = "1=CONTAINS(POINT('ICRS', {0}ra, {0}dec), CIRCLE('ICRS', 10, -5.5, 0.1))"
UPLOADS = {"mine": pa.schema([("id", pa.string()), ("x", pa.float64()), ("y", pa.float64())])}


@pytest.mark.parametrize(
    ("query", "bounds"),
    [
        ("SELECT * FROM objects", [Bound()]),
        ("SELECT * FROM objects WHERE " + INSIDE.format(""), [CONE]),
        ("SELECT * FROM objects o WHERE ra > 3 AND (" + INSIDE.format("o.") + ")", [CONE]),
        ("SELECT * FROM objects WHERE NOT " + INSIDE.format(""), [Bound()]),
        ("SELECT * FROM objects WHERE ra > 3 OR " + INSIDE.format(""), [Bound()]),
        ("SELECT * FROM objects WHERE 0" + INSIDE.format("")[1:], [Bound()]),
        ("SELECT * FROM objects WHERE DISTANCE(POINT(ra, dec), POINT(10, -5.5)) > 0.1", [Bound()]),
        ("SELECT * FROM objects WHERE DISTANCE(POINT(ra, dec), POINT(10, -5.5)) < 0.1", [CONE]),
        ("SELECT * FROM objects WHERE DISTANCE(POINT(dec, ra), POINT(10, -5.5)) < 0.1", [Bound()]),
        ("SELECT * FROM detections WHERE object_id = 17", [Bound("keys", "object_id", ("17",))]),
        (
            "SELECT * FROM detections WHERE 'a' = object_id AND object_id <> 'b'",
            [Bound("keys", "object_id", ("a",))],
        ),
        (
            "SELECT * FROM detections WHERE object_id IN ('a', 'b')",
            [Bound("keys", "object_id", ("a", "b"))],
        ),
        ("SELECT * FROM detections WHERE object_id NOT IN ('a', 'b')", [Bound()]),
        ("SELECT * FROM detections WHERE object_id IN ('a', survey)", [Bound()]),
        ("SELECT * FROM detections WHERE object_id = survey", [Bound()]),
        ("SELECT * FROM detections WHERE visit = 3", [Bound()]),
        (
            "SELECT * FROM alerts WHERE alert_id BETWEEN 3 AND 7",
            [Bound("range", "alert_id", (3, 7))],
        ),
        ("SELECT * FROM alerts WHERE alert_id NOT BETWEEN 3 AND 7", [Bound()]),
        (
            "SELECT * FROM alerts WHERE alert_id = 9007199254740993",
            [Bound("keys", "alert_id", (9007199254740993,))],
        ),
        (
            "SELECT * FROM moving WHERE designation IN ('2011 UW158', 45685) AND alert_id = 3",
            [Bound("keys", "designation", ("2011 UW158", "45685"))],
        ),
        ("SELECT * FROM moving WHERE alert_id = 3 AND survey = 'ztf'", [Bound()]),
        ("SELECT * FROM moving WHERE alert_id BETWEEN 3 AND 7", [Bound()]),
        (
            "SELECT * FROM moving m JOIN alerts a ON m.alert_id = a.alert_id "
            "WHERE m.designation = '64P'",
            [
                Bound("keys", "designation", ("64P",)),
                Bound("join", "alert_id", ("alert_id",), "t0"),
            ],
        ),
        ("SELECT * FROM nights WHERE night = 59000", [Bound("range", "night", (59000, 59000))]),
        (
            "SELECT * FROM objects o JOIN detections d ON o.object_id = d.object_id WHERE "
            + INSIDE.format("o."),
            [CONE, Bound("join", "object_id", ("object_id",), "t0")],
        ),
        (
            "SELECT * FROM objects o JOIN detections d USING (object_id) WHERE "
            + INSIDE.format("o."),
            [CONE, Bound("join", "object_id", ("object_id",), "t0")],
        ),
        (
            "SELECT * FROM objects o LEFT JOIN detections d ON o.object_id = d.object_id AND "
            + INSIDE.format("o."),
            [Bound(), Bound("join", "object_id", ("object_id",), "t0")],
        ),
        (
            "SELECT * FROM objects o FULL JOIN detections d ON o.object_id = d.object_id",
            [Bound(), Bound()],
        ),
        (
            "SELECT * FROM objects o RIGHT JOIN detections d ON o.object_id = d.object_id",
            [Bound(), Bound()],
        ),
        (
            "SELECT * FROM objects o WHERE EXISTS (SELECT 1 FROM detections d "
            "WHERE d.object_id = o.object_id)",
            [Bound(), Bound()],
        ),
        (
            "SELECT * FROM detections WHERE object_id IN (SELECT o.object_id FROM objects o WHERE "
            + INSIDE.format("o.")
            + ")",
            [Bound("join", "object_id", ("object_id",), "t1"), CONE],
        ),
        (
            "SELECT * FROM detections WHERE object_id NOT IN (SELECT object_id FROM objects)",
            [Bound(), Bound()],
        ),
        (
            "SELECT * FROM tap_upload.mine m JOIN objects o ON "
            "1=CONTAINS(POINT(o.ra, o.dec), CIRCLE(m.x, m.y, 0.001))",
            [Bound(), Bound("around", values=("x", "y", 0.001), of="t0")],
        ),
        (
            "SELECT * FROM tap_upload.mine m LEFT JOIN objects o ON "
            "DISTANCE(POINT(o.ra, o.dec), POINT(m.x, m.y)) < 0.001",
            [Bound(), Bound("around", values=("x", "y", 0.001), of="t0")],
        ),
    ],
)
def test_bounds(query: str, bounds: list[Bound]) -> None:
    found = plan(query, UPLOADS)
    assert [source.bound for source in found.sources] == bounds


@pytest.mark.parametrize(
    ("query", "by_chunk"),
    [
        ("SELECT TOP 5 ra + 1 FROM objects WHERE dec < 3", True),
        ("SELECT TOP 5 ra FROM objects ORDER BY ra", False),
        ("SELECT DISTINCT survey FROM objects", False),
        ("SELECT COUNT(*) FROM objects", False),
        ("SELECT ra FROM objects OFFSET 3", False),
        ("SELECT ra FROM objects WHERE ra > (SELECT AVG(ra) FROM objects)", False),
        ("SELECT o.ra FROM objects o, objects p", False),
        ("SELECT ra FROM (SELECT ra FROM objects) AS t", False),
        ("SELECT ra FROM objects UNION SELECT dec FROM objects", False),
        ("SELECT survey FROM objects GROUP BY survey", False),
    ],
)
def test_rows_that_depend_on_one_row_are_made_chunk_by_chunk(query: str, by_chunk: bool) -> None:
    assert plan(query, {}).by_chunk is by_chunk


def test_only_columns_that_are_named_are_read() -> None:
    [source] = plan("SELECT flux FROM detections WHERE band = 'r' ORDER BY mjd", {}).sources
    assert source.columns == ["mjd", "band", "flux"]
    [source] = plan("SELECT COUNT(*) FROM detections", {}).sources
    assert source.columns == ["object_id"]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT * FROM objects, objects", "two tables are called objects"),
        ('SELECT "__row" FROM tap_upload.mine', "does not begin with __"),
        (
            "SELECT * FROM tap_upload.mine m, objects o WHERE "
            "DISTANCE(POINT(o.ra, o.dec), POINT(m.x, m.y)) < 1",
            "at most 60 arcsec",
        ),
        ("SELECT TOP ra * FROM objects", "TOP|no ADQL|whole number"),
        ("SELECT TOP 1.5 * FROM objects", "whole number"),
    ],
)
def test_what_cannot_be_planned_is_named(query: str, message: str) -> None:
    with pytest.raises(BadAdql, match=message):
        plan(query, UPLOADS)
