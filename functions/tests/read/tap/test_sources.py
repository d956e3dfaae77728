"""Queries over simulated alerts of both surveys give what the other routes give."""

import io
from collections.abc import Iterator
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from stampede.alerts.positions import positions_of
from stampede.config.settings import Settings
from stampede.lookup import cone_search
from stampede.read.app import make_app
from stampede.read.tap import sources
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS, MOVING, POSITIONS
from stampede.store.tables.table import Table
from stampede_simulator.simulator import Fields, Simulator
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.read.read_service import Reader, serving


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> MemoryObjects:
    """A store of 400 alerts of 40 objects, in two batches: later alerts repeat what was known."""
    simulated = Simulator(3, Fields(objects=40)).alerts(400)
    alerts = [alert for alert in simulated if alert.fault is None]
    decoder, objects = make_batch_decoder(tmp_path_factory.mktemp("a"), 70_000.0), MemoryObjects()
    for begin, end in ((0, 200), (200, len(alerts))):
        decoded = decoder.detections([alert.body for alert in alerts[begin:end]])
        rows = decoded.rows
        coverage = Coverage.of({("alerts", 0): range(begin, end)})
        Table(objects, POSITIONS).append(positions_of(rows), coverage)
        Table(objects, MOVING).append(decoded.moving, coverage)
        Table(objects, DETECTIONS).append(rows, coverage)
    return objects


@pytest.fixture(scope="module")
def read(objects: MemoryObjects) -> Iterator[Reader]:
    yield from serving(make_app(Settings(ztf_programids="1,2,3"), objects))


def ask(read: Reader, query: str) -> pa.Table:
    parameters = urlencode({"LANG": "ADQL", "QUERY": query, "FORMAT": "arrow"})
    response = read("/tap/sync", "POST", parameters.encode())
    assert response.status == 200, response.data
    return pa.ipc.open_stream(io.BytesIO(response.data)).read_all()


def test_detections_are_those_of_light_curves(
    read: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "SOME", 3)
    found = ask(read, "SELECT * FROM detections ORDER BY object_id, mjd")
    assert found.num_rows > 500
    assert len(found["survey"].unique()) == 2
    for object_id in found["object_id"].unique().to_pylist():
        own = read(f"/v1/objects/{object_id}/lightcurve?format=arrow&withdrawn=true")
        curve = pa.ipc.open_stream(own.data).read_all()
        rows = found.filter(pc.equal(found["object_id"], object_id))
        for name in ("source_id", "mjd", "flux", "band", "forced", "withdrawn"):
            assert sorted(rows[name].to_pylist(), key=repr) == sorted(
                curve[name].to_pylist(), key=repr
            )
        assert rows.num_rows == curve.num_rows


def test_objects_are_the_same_by_id_and_by_scan_in_rings(
    read: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = "object_id, survey, detections, first_mjd, last_mjd"
    query = f"SELECT {columns} FROM objects ORDER BY object_id"
    every = ask(read, query)
    assert every.num_rows > 40
    monkeypatch.setattr(cone_search, "MOST_ROWS", 5)
    assert ask(read, query).equals(every)
    ids = ",".join(f"'{each}'" for each in every["object_id"].to_pylist())
    named = ask(read, query.replace("ORDER", f"WHERE object_id IN ({ids}) ORDER"))
    assert named.equals(every)
    counted = ask(
        read,
        "SELECT object_id, COUNT(*) AS n FROM detections WHERE forced = false AND "
        '"limit" = false AND withdrawn = false AND moved IS NULL GROUP BY object_id',
    )
    counts = dict(zip(*(column.to_pylist() for column in counted.columns), strict=True))
    assert set(counts) == {*every["object_id"].to_pylist()}


def test_a_join_reads_the_points_of_the_objects_in_a_cone(read: Reader) -> None:
    place = ask(read, "SELECT TOP 1 ra, dec FROM objects ORDER BY object_id").to_pylist()[0]
    distance = f"DISTANCE(POINT(ra, dec), POINT({place['ra']}, {place['dec']}))"
    away = ask(read, f"SELECT {distance} AS d FROM objects ORDER BY d")["d"].to_pylist()
    radius = (away[len(away) // 2] + away[len(away) // 2 + 1]) / 2
    inside = f"1=CONTAINS(POINT(%ra, %dec), CIRCLE({place['ra']}, {place['dec']}, {radius}))"
    joined = ask(
        read,
        "SELECT d.object_id, d.source_id FROM objects o JOIN detections d "
        f"ON o.object_id = d.object_id WHERE {inside.replace('%', 'o.')}",
    )
    named = ask(read, "SELECT object_id FROM objects WHERE " + inside.replace("%", ""))
    ids = named["object_id"]
    assert len(ids) == len(away) // 2 + 1
    whole = ask(read, "SELECT object_id, source_id FROM detections")
    expected = whole.filter(pc.is_in(whole["object_id"], ids.combine_chunks()))
    assert sorted(map(str, joined.to_pylist())) == sorted(map(str, expected.to_pylist()))
    points = "SELECT object_id, source_id, ra, dec FROM detections WHERE "
    near = ask(read, points + inside.replace("%", ""))
    every = ask(read, f"{points}{distance} - {radius} <= 0")
    assert sorted(map(str, near.to_pylist())) == sorted(map(str, every.to_pylist()))
    assert near.num_rows > 0


def test_moving_objects_are_those_of_their_route(
    read: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "SOME", 2)
    every = ask(read, "SELECT * FROM moving ORDER BY designation, mjd, alert_id")
    names = every["designation"].unique().to_pylist()
    assert len(names) > 4
    routes = [read(f"/v1/moving/{name.replace(' ', '_')}?format=arrow") for name in names]
    rows = pa.concat_tables([pa.ipc.open_stream(each.data).read_all() for each in routes])
    assert every.to_pylist() == rows.to_pylist()
    query = f"SELECT * FROM moving WHERE designation IN ('{names[0]}', '{names[1]}')"
    named = ask(read, f"{query} ORDER BY designation, mjd, alert_id")
    assert named.to_pylist() == every.slice(0, named.num_rows).to_pylist()
    assert named["designation"].unique().to_pylist() == names[:2]
    joined = ask(
        read,
        "SELECT m.object_id, o.ra FROM moving AS m JOIN objects AS o "
        f"ON m.object_id = o.object_id WHERE m.designation = '{names[0]}'",
    )
    first = rows.filter(pc.equal(rows["designation"], names[0]))
    assert joined["object_id"].to_pylist() == first["object_id"].to_pylist()


def test_programmes_that_are_not_stored_are_withheld(objects: MemoryObjects) -> None:
    query = "SELECT DISTINCT programid FROM detections WHERE survey = 'ztf'"
    for read in serving(make_app(Settings(ztf_programids="2"), objects)):
        shown = {*ask(read, query)["programid"].to_pylist()} - {None}
        assert shown <= {2}


@pytest.mark.parametrize(
    ("table", "query"),
    [
        ("detections", "SELECT object_id FROM detections"),
        ("detections", "SELECT object_id FROM detections WHERE object_id IN ({0})"),
        ("detections", "SELECT COUNT(*) AS n FROM detections"),
        ("moving", "SELECT * FROM moving"),
        ("positions", "SELECT * FROM objects"),
        ("positions", "SELECT * FROM objects WHERE DISTANCE(POINT(ra, dec), POINT(1, 1)) < 180"),
    ],
)
def test_a_result_that_lacks_damaged_rows_says_so(
    read: Reader, objects: MemoryObjects, table: str, query: str
) -> None:
    ids = ask(read, "SELECT DISTINCT object_id FROM detections")["object_id"].to_pylist()
    query = query.format(",".join(f"'{each}'" for each in ids))
    whole = ask(read, query)
    damaged = MemoryObjects()
    for info in objects.list(""):
        damaged.put(info.key, objects.get(info.key))
    key = next(info.key for info in objects.list(f"tables/{table}/"))
    damaged.put(key, bytes(len(objects.get(key))))
    for broken in serving(make_app(Settings(ztf_programids="1,2,3"), damaged)):
        parameters = urlencode({"LANG": "ADQL", "QUERY": query})
        response = broken("/tap/sync", "POST", parameters.encode())
        assert response.status == 200
        assert f"damaged object of the table {table}" in response.headers["Stampede-Incomplete"]
        assert b'<INFO name="incomplete"' in response.data
        assert response.data.count(b"<TR>") <= whole.num_rows
        made = broken("/tap/async", "POST", f"{parameters}&PHASE=RUN".encode())
        job = made.headers["location"].removeprefix(broken.url)
        assert b"COMPLETED" in broken(f"{job}?WAIT=60").data
        assert b'<INFO name="incomplete"' in broken(f"{job}/results/result").data
