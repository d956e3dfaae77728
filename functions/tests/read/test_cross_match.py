"""POST /v1/cone: the objects around many positions, as GET finds them around each."""

import csv
import io
import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stampede.read.app import make_app
from stampede.settings import Settings
from tests.read.test_cone import store
from tests.support.read_service import Reader, point, serving

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
    answer = read(f"/v1/cone?{query}&format=arrow", "POST", body)
    assert answer.status == 200, answer.data
    return pa.ipc.open_stream(answer.data).read_all().to_pylist()


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


def test_lines_in_a_table_out_and_positions_without_an_object(read: Reader) -> None:
    ra, dec = PLACES[5]
    body = f"ra,dec\n200,-60\n{ra},{dec}\n".encode()
    answer = read("/v1/cone?radius=0.5&format=csv", "POST", body)
    lines = list(csv.reader(io.StringIO(answer.data.decode())))
    assert lines[0][:3] == ["position", "object_id", "survey"]
    assert [line[:2] for line in lines[1:]] == [["1", "o5"], ["0", ""]]
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
    answer = read(f"/v1/cone?{query}", "POST", body)
    assert answer.status == status
    assert answer.json().get("parameter") == parameter
