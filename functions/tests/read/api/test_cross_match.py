"""POST /v1/cone: the objects around many positions, as GET finds them around each."""

import csv
import io
import json
import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from stampede.alerts.positions import positions_of
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import POSITIONS
from stampede.store.tables.table import Table
from tests.read.api.test_cone import store
from tests.support.read.read_service import Reader, point, serving

RANDOM = np.random.default_rng(7)
# Around a pole, across 0 degrees of right ascension, and at a corner of HEALPix's base cells.
CENTRES = [(120.0, 89.9995), (0.0005, 10.0), (45.0, 41.8103)]
PLACES = [
    ((ra + east / max(np.cos(np.radians(dec)), 1e-5)) % 360, min(dec + north, 90.0))
    for ra, dec in CENTRES
    for east, north in RANDOM.uniform(-0.01, 0.01, (40, 2))
]


@pytest.fixture(scope="module")
def read() -> Iterator[Reader]:
    points = [
        point(f"o{n}", "lsst", n + 1, 60000.0 + n, ra=ra, dec=dec)
        for n, (ra, dec) in enumerate(PLACES)
    ]
    yield from serving(make_app(Settings(), store(points, batches=3)))


def rows(read: Reader, places, query: str) -> list[dict]:
    body = json.dumps({"positions": [[*place] for place in places]}).encode()
    response = read(f"/v1/cone?{query}&format=arrow", "POST", body)
    assert response.status == 200, response.data
    return pa.ipc.open_stream(response.data).read_all().to_pylist()


@pytest.mark.parametrize("radius", ["0", "5", "20arcsec", "1arcmin"])
def test_each_position_gets_what_a_cone_gets(read: Reader, radius: str) -> None:
    places = [*PLACES[::4], *CENTRES, (200.0, -60.0)]
    found = rows(read, places, f"radius={radius}")
    for number, (ra, dec) in enumerate(places):
        own = [row for row in found if row["position"] == number]
        cone = read(f"/v1/cone?ra={ra}&dec={dec}&radius={radius}").json()["objects"]
        assert [row["object_id"] for row in own] == [row["object_id"] for row in cone]
        np.testing.assert_allclose(
            [row["distance"] for row in own], [row["distance"] for row in cone], atol=1e-7
        )
        assert [row["detections"] for row in own] == [row["detections"] for row in cone]
    uncounted = rows(read, places, f"radius={radius}&counts=false")
    assert {row["detections"] for row in uncounted} <= {None}
    assert [row["object_id"] for row in uncounted] == [row["object_id"] for row in found]


@pytest.mark.long
def test_as_many_positions_as_a_query_may_have() -> None:
    """Each is that of one object of 10^5, moved by 0.3 arcsec."""
    count = 100_000
    ra, dec = 10 * np.random.default_rng(5).random((2, count)) + [[20.0], [-35.0]]
    no = np.zeros(count, bool)
    points = pa.table(
        {
            "object_id": np.arange(count).astype(str),
            "survey": pa.repeat("lsst", count),
            **{
                "forced": no,
                "limit": no,
                "withdrawn": no,
                "programid": pa.nulls(count, pa.int32()),
                "moved": pa.nulls(count, pa.bool_()),
            },
            **{"source_id": np.arange(count), "mjd": np.full(count, 6e4), "ra": ra, "dec": dec},
        }
    )
    objects = MemoryObjects()
    Table(objects, POSITIONS).append(positions_of(points), Coverage())
    body = "\n".join(f"{x},{y + 0.3 / 3600}" for x, y in zip(ra, dec, strict=True)).encode()
    for read in serving(make_app(Settings(), objects)):
        begin = time.perf_counter()
        response = read("/v1/cone?radius=1&counts=false&format=parquet", "POST", body)
        print(f"{count / (time.perf_counter() - begin):,.0f} positions/s")
    found = pq.read_table(io.BytesIO(response.data))
    own = found.filter(pc.equal(found["position"].cast(pa.string()), found["object_id"]))
    assert sorted(own["position"].to_pylist()) == list(range(count))
    np.testing.assert_allclose(own["distance"], 0.3, atol=1e-4)


def test_lines_in_a_table_out_and_positions_without_an_object(read: Reader) -> None:
    ra, dec = PLACES[5]
    body = f"ra,dec\n200,-60\n{ra},{dec}\n".encode()
    response = read("/v1/cone?radius=0.5&format=csv", "POST", body)
    lines = list(csv.reader(io.StringIO(response.data.decode())))
    assert lines[0][:3] == ["position", "object_id", "survey"]
    assert [line[:2] for line in lines[1:]] == [["1", "o5"]]
    parquet = read("/v1/cone?radius=0.5&format=parquet", "POST", body).data
    assert pq.read_metadata(io.BytesIO(parquet)).metadata[b"stampede.missing"] == b'["0"]'


def test_only_objects_of_some_nights(read: Reader) -> None:
    assert not rows(read, PLACES[:1], "radius=1&since=70000")
    assert rows(read, PLACES[:1], "radius=1&nights=60000")


@pytest.mark.parametrize(
    ("query", "body", "status", "parameter"),
    [
        ("radius=5", b"", 400, "positions"),
        ("radius=5", b"{}", 400, "positions"),
        ("radius=5", b'{"positions": [[1]]}', 400, "positions"),
        ("radius=5", b'{"positions": [["1", "2"]]}', 400, "positions"),
        ("radius=5", b'{"positions": [[1, 91]]}', 400, "positions"),
        ("radius=5", b'{"positions": 5}', 400, "positions"),
        ("radius=5", b"1,2\n3\n", 400, "positions"),
        ("radius=5", "1,²\n".encode(), 400, "positions"),
        ("radius=5", b"\n" * 100_002, 413, None),
        ("radius=61", b"1,2\n", 400, "radius"),
        ("", b"1,2\n", 400, "radius"),
    ],
)
def test_a_bad_query_is_named(read: Reader, query, body, status, parameter) -> None:
    response = read(f"/v1/cone?{query}", "POST", body)
    assert response.status == status
    assert response.json().get("parameter") == parameter
