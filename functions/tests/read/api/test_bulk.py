import json
import tarfile
import time
import tracemalloc
from io import BytesIO

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from urllib3.exceptions import HTTPError

from stampede.alerts.columns import DETECTION, KINDS
from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from tests.support.alerts.fits_files import source, ztf
from tests.support.read.read_service import (
    BOTH,
    LSST_ALERT,
    LSST_OBJECT,
    ZTF_ALERT,
    ZTF_OBJECT,
    cutout,
    fill,
    point,
    serving,
)
from tests.support.store.watched_objects import BeforeGet

CUTOUTS, LIGHT_CURVES = "/v1/cutouts", "/v1/lightcurves"
ALERTS = {"ids": [str(LSST_ALERT), ZTF_ALERT, "404", str(ZTF_ALERT)]}
OBJECTS = {"ids": [ZTF_OBJECT, "ZTF99nothing", LSST_OBJECT, int(LSST_OBJECT)]}


def post(read, path, body, **headers):
    data = json.dumps(body).encode() if isinstance(body, dict) else body
    return read(path, "POST", data, headers=headers)


def members(tar: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=BytesIO(tar)) as file:
        return {member.name: file.extractfile(member).read() for member in file}


def batches(data: bytes) -> tuple[pa.Table, list[str]]:
    reader = pa.ipc.open_stream(data)
    rows, missing = [], None
    for batch, metadata in reader.iter_batches_with_custom_metadata():
        rows.append(batch)
        if metadata:
            missing = json.loads(metadata[b"stampede.missing"])
    return pa.Table.from_batches(rows, reader.schema), missing


def test_cutouts_by_id_are_a_tar(read):
    got = post(read, CUTOUTS, ALERTS)
    assert got.status == 200
    assert got.headers["content-type"] == "application/x-tar"
    found = members(got.data)
    names = [f"{ZTF_ALERT}/{kind}.fits.gz" for kind in KINDS]
    names += [f"{LSST_ALERT}/{kind}.fits.gz" for kind in ("science", "difference")]
    assert {*found} == {*names, "missing.json"}
    assert list(found)[-1] == "missing.json"
    assert found[f"{ZTF_ALERT}/template.fits.gz"] == ztf(source(seed=1))
    assert json.loads(found["missing.json"]) == {
        "unknown_alerts": ["404"],
        "no_such_cutouts": [f"{LSST_ALERT}/template"],
        "gone": [],
        "damaged": [],
        "unreadable_alerts": [],
    }


def test_a_tar_has_the_headers_that_tarfile_makes(read):
    tar = post(read, CUTOUTS, ALERTS).data
    with tarfile.open(fileobj=BytesIO(tar)) as file:
        for member in file:
            assert tar[member.offset : member.offset_data] == member.tobuf(tarfile.USTAR_FORMAT)
            taken = {str(ZTF_ALERT): 59400.0, str(LSST_ALERT): 60800.5}
            mjd = taken.get(member.name.partition("/")[0], 40587.0)
            assert member.mtime == (mjd - 40587) * 86400


def test_cutouts_by_id_as_arrow(read):
    got = post(read, f"{CUTOUTS}?format=arrow", ALERTS)
    rows, missing = batches(got.data)
    assert missing == ["404"]
    assert rows.num_rows == 6
    (absent,) = (row for row in rows.to_pylist() if row["fits"] is None)
    assert (absent["alert_id"], absent["kind"]) == (LSST_ALERT, "template")
    fits = {row["kind"]: row["fits"] for row in rows.to_pylist() if row["alert_id"] == ZTF_ALERT}
    assert fits == {kind: ztf(source(seed=seed)) for seed, kind in enumerate(KINDS)}


def test_an_id_of_both_surveys_gives_both_alerts(read):
    rows, _ = batches(post(read, f"{CUTOUTS}?format=arrow", {"ids": [BOTH]}).data)
    assert sorted(rows["survey"].to_pylist()) == ["lsst"] * 3 + ["ztf"] * 3


IDS = {
    "lines": b"1642404680815015001\n404\n",
    "CSV with a header": b"candid\r\n1642404680815015001\r\n404\r\n",
    "one line": b"1642404680815015001, 404",
    "quoted": b'"alert_id"\n"1642404680815015001"\n"404"\n',
    "JSON of numbers": b' {"ids": [1642404680815015001, 404]}',
}


@pytest.mark.parametrize("body", IDS.values(), ids=IDS)
def test_ids_can_be_sent_in_many_formats(read, body):
    rows, missing = batches(post(read, f"{CUTOUTS}?format=arrow", body).data)
    assert {*rows["alert_id"].to_pylist()} == {ZTF_ALERT}
    assert missing == ["404"]


def test_light_curves_by_id_are_an_arrow_stream(read):
    got = post(read, LIGHT_CURVES, OBJECTS)
    assert got.headers["content-type"] == "application/vnd.apache.arrow.stream"
    rows, missing = batches(got.data)
    assert rows.schema == DETECTION
    assert missing == ["ZTF99nothing"]
    assert rows["object_id"].to_pylist() == [LSST_OBJECT] * 2 + [ZTF_OBJECT] * 4
    assert rows["mjd"].to_pylist()[2:] == [59398.0, 59399.0, 59400.0, 59401.0]


def test_light_curves_by_id_as_parquet(read):
    got = post(read, LIGHT_CURVES, OBJECTS, Accept="application/vnd.apache.parquet")
    file = pq.ParquetFile(BytesIO(got.data))
    assert file.read()["object_id"].to_pylist() == [LSST_OBJECT] * 2 + [ZTF_OBJECT] * 4
    assert json.loads(file.metadata.metadata[b"stampede.missing"]) == ["ZTF99nothing"]


def test_light_curves_by_id_as_csv(read):
    got = post(read, f"{LIGHT_CURVES}?format=csv", OBJECTS)
    rows = pa_csv.read_csv(BytesIO(got.data))
    assert rows.column_names == DETECTION.names
    assert rows["object_id"].to_pylist() == [LSST_OBJECT] * 2 + [ZTF_OBJECT] * 4


def test_no_id_in_csv_has_a_hole(read):
    """Of a column with one, readers make floats, which round ids above 2^53."""
    rows, missing = batches(post(read, f"{LIGHT_CURVES}?format=arrow", OBJECTS).data)
    table = pa_csv.read_csv(BytesIO(post(read, f"{LIGHT_CURVES}?format=csv", OBJECTS).data))
    assert missing == ["ZTF99nothing"]
    assert table.schema.field("source_id").type == pa.int64()
    assert table["source_id"].to_pylist() == rows["source_id"].to_pylist()
    assert max(table["source_id"].to_pylist()) > 2**53
    assert table["object_id"].null_count == 0


LARGE = 170587115523932323  # of Rubin; as a float it is 170587115523932320
ROUNDED = {
    "JSON with an exponent": b'{"ids": [1.7058711552393232e17]}',
    "JSON with a point": b'{"ids": [170587115523932323.0]}',
    "text in JSON": b'{"ids": ["1.7058711552393232e+17"]}',
    "a line": b"1.7058711552393232E17\n",
    "CSV of pandas": b"object_id\n170587115523932323.0\n",
}


@pytest.mark.parametrize("route", [CUTOUTS, LIGHT_CURVES])
@pytest.mark.parametrize("body", ROUNDED.values(), ids=ROUNDED)
def test_an_id_that_was_rounded_is_refused(read, route, body):
    assert read(route, "POST", body).status == 400


@pytest.mark.parametrize("route", [CUTOUTS, LIGHT_CURVES])
@pytest.mark.parametrize("body", [b'{"ids": [%d]}', b'{"ids": ["%d"]}', b"%d"])
def test_a_large_id_is_taken_exactly(read, route, body):
    _, missing = batches(post(read, f"{route}?format=arrow", body % LARGE).data)
    assert missing == [str(LARGE)]


def test_a_name_that_looks_like_a_small_number_is_a_name(read):
    _, missing = batches(post(read, f"{LIGHT_CURVES}?format=arrow", b"2003E1").data)
    assert missing == ["2003E1"]


def test_points_can_be_filtered(read):
    rows, missing = batches(post(read, f"{LIGHT_CURVES}?forced=true&band=u", OBJECTS).data)
    assert rows["source_id"].to_pylist() == [9007199254740993]
    assert missing == ["ZTF99nothing"]  # the other object is known, but none of its points match


def test_an_answer_without_data_is_complete(read):
    assert json.loads(members(post(read, CUTOUTS, b"5").data)["missing.json"]) == {
        "unknown_alerts": ["5"],
        "no_such_cutouts": [],
        "gone": [],
        "damaged": [],
        "unreadable_alerts": [],
    }
    for name in ("arrow", "parquet", "csv"):
        assert post(read, f"{LIGHT_CURVES}?format={name}", b"nothing").status == 200


PROBLEMS = {
    "no ids": (CUTOUTS, b"", 400, "bad-parameter", "ids"),
    "no ids in JSON": (CUTOUTS, b'{"ids": []}', 400, "bad-parameter", "ids"),
    "not JSON": (CUTOUTS, b'{"ids": [1', 400, "bad-parameter", "ids"),
    "a list alone": (CUTOUTS, b"[1, 2]", 400, "bad-parameter", "ids"),
    "no list": (CUTOUTS, b'{"ids": "1"}', 400, "bad-parameter", "ids"),
    "nested": (CUTOUTS, b'{"ids": [[1]]}', 400, "bad-parameter", "ids"),
    "a float": (CUTOUTS, b'{"ids": [1.5]}', 400, "bad-parameter", "ids"),
    "true": (CUTOUTS, b'{"ids": [true]}', 400, "bad-parameter", "ids"),
    "too large a number": (CUTOUTS, b"9223372036854775808", 400, "bad-parameter", "ids"),
    "not a number": (CUTOUTS, b"5\nabc", 400, "bad-parameter", "ids"),
    "not an object": (LIGHT_CURVES, b"<script>", 400, "bad-parameter", "ids"),
    "no such format": (f"{CUTOUTS}?format=zip", b"5", 400, "bad-parameter", "format"),
    "no such band": (f"{LIGHT_CURVES}?band=x", b"5", 400, "bad-parameter", "band"),
    "too many": (CUTOUTS, b"5\n" * 21, 413, "too-large", None),
    "too long": (CUTOUTS, b" " * 5000, 413, "too-large", None),
}


@pytest.fixture(scope="module")
def small_limits(store):
    yield from serving(make_app(Settings(bulk_ids=20, bulk_queries=1), store))


@pytest.mark.parametrize(
    ("path", "body", "status", "name", "parameter"), PROBLEMS.values(), ids=PROBLEMS
)
def test_bad_requests_are_problems(small_limits, path, body, status, name, parameter):
    got = post(small_limits, path, body)
    assert got.status == status
    assert got.json()["type"] == f"urn:stampede:problem:{name}"
    assert got.json().get("parameter") == parameter


def test_too_many_ids_name_the_service_that_accepts_them(store):
    settings = Settings(bulk_ids=20, bulk_url="http://bulk.test")
    for server in serving(make_app(settings, store)):
        got = post(server, CUTOUTS, b"5\n" * 21)
        assert got.status == 413
        assert got.json()["detail"] == (
            "more than 20 ids: split the query, or send all of them to http://bulk.test"
        )


N = 5_000


@pytest.fixture(scope="module")
def large() -> MemoryObjects:
    """Cutouts of `N` alerts, 2 KB each, in packs of 250 alerts, and as many objects."""
    objects, noise = MemoryObjects(), ztf(source(size=24))
    for start in range(0, N, 250):
        alerts = range(start + 1, start + 251)
        rows = [
            cutout(i, "ztf", kind, f"Z{i:05}", 59000.0, noise) for i in alerts for kind in KINDS
        ]
        points = [
            point(f"Z{i:05}", "ztf", 10 * i + n, 59000.0 + n) for i in alerts for n in range(5)
        ]
        fill(objects, rows, points, Coverage.of({("ztf", 0): alerts}))
    return objects


class CountingObjects(BeforeGet):
    """Counts the requests for packs; fails them after 20 if `broken`."""

    def __init__(self, inner: Objects) -> None:
        super().__init__(inner, self._count)
        self.gets, self.broken = 0, False

    def _count(self, key: str, start: int) -> None:
        self.gets += key.startswith("packs/")
        if self.broken and self.gets > 20:
            raise StoreDown("the store went away")


@pytest.mark.integration
def test_cutouts_of_ten_thousand_ids_in_bounded_memory(large):
    objects = CountingObjects(large)
    ids = "\n".join(str(i) for i in range(1, 2 * N + 1)).encode()  # half of them unknown
    for read in serving(make_app(Settings(cache_bytes=1 << 20), objects)):
        post(read, CUTOUTS, b"1")
        tracemalloc.start()
        try:
            got = read(CUTOUTS, "POST", ids, preload_content=False)
            with tarfile.open(fileobj=got, mode="r|") as file:
                names = []
                for member in file:
                    names.append(member.name)
                    data = file.extractfile(member).read()
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
    assert len({*names}) == 3 * N + 1
    assert len(json.loads(data)["unknown_alerts"]) == N
    assert peak < 20e6, f"{peak / 1e6:.0f} MB"
    assert objects.gets < N / 20, "neighbours come in one request"


def test_an_answer_starts_before_all_is_read(large):
    objects = CountingObjects(large)
    for read in serving(make_app(Settings(), objects)):
        body = "\n".join(str(i) for i in range(1, N, 3)).encode()
        got = read(CUTOUTS, "POST", body, preload_content=False)
        assert got.read(512).startswith(b"1/")
        seen = objects.gets
        got.read()
        assert seen < objects.gets


def test_many_light_curves(large):
    for read in serving(make_app(Settings(), large)):
        ids = "\n".join(f"Z{i:05}" for i in range(N + 1)).encode()
        for name in ("arrow", "parquet"):
            got = post(read, f"{LIGHT_CURVES}?format={name}", ids)
            rows = batches(got.data)[0] if name == "arrow" else pq.read_table(BytesIO(got.data))
            assert rows.num_rows == 5 * N
            assert rows["object_id"].to_pylist() == sorted(rows["object_id"].to_pylist())


def test_a_store_that_fails_half_way_breaks_the_connection(large):
    objects = CountingObjects(large)
    for read in serving(make_app(Settings(), objects)):
        objects.broken = True
        ids = "\n".join(str(i) for i in range(1, N, 3)).encode()
        got = read(CUTOUTS, "POST", ids, preload_content=False, retries=False)
        assert got.status == 200
        with pytest.raises(HTTPError):
            got.read()


def test_too_many_large_queries_at_once_are_a_429(large):
    settings = Settings(bulk_queries=1)
    for read in serving(make_app(settings, large)):
        ids = "\n".join(str(i) for i in range(1, N, 3)).encode()
        first = read(CUTOUTS, "POST", ids, preload_content=False)
        first.read(512)
        second = post(read, CUTOUTS, b"1")
        assert second.status == 429
        assert second.headers["retry-after"]
        assert second.json()["type"] == "urn:stampede:problem:too-many-queries"
        assert read("/v1/alerts/1").status == 200  # a small query still works
        first.read()
        wait_for_a_slot(read)


def test_a_client_that_disconnects_frees_its_slot(large):
    for read in serving(make_app(Settings(bulk_queries=1), large)):
        ids = "\n".join(str(i) for i in range(1, N)).encode()
        first = read(CUTOUTS, "POST", ids, preload_content=False)
        first.read(512)
        first.close()
        wait_for_a_slot(read)


def wait_for_a_slot(read):
    deadline = time.monotonic() + 100
    while (status := post(read, CUTOUTS, b"1").status) == 429:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert status == 200
