"""The ledger, the OpenAPI description, metrics, health; threads; a store that is down."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from starlette.routing import Mount

from stampede.alerts.columns import DETECTION
from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.read import lazy_routes
from stampede.read.app import make_app
from stampede.read.routes import ROUTES
from stampede.read.service import SMALL_THREADS
from stampede.read.web.static_files import address
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.parquet.checksums import write
from tests.support.alerts.fits_files import source, ztf
from tests.support.read.read_service import (
    BODY,
    BOTH,
    LSST_OBJECT,
    ZTF_ALERT,
    ZTF_OBJECT,
    Reader,
    cutout,
    fill,
    point,
    serving,
)
from tests.support.store.watched_objects import BeforeGet, Watched


def store_dead_letters(objects, table: str, coverage: Coverage) -> None:
    rows = pa.table({"data": [b"no alert"]})
    data = write(rows, {"stampede.coverage": coverage.to_json(), "stampede.table": table})
    objects.put(f"deadletters/{table}/{'0' * 32}.parquet", memoryview(data))


def store_alert(objects, alert_id: int, offset: int) -> None:
    fill(
        objects,
        [cutout(alert_id, "ztf", "science", "Z1", 59000.0, ztf(source()))],
        [point("Z1", "ztf", alert_id, 59000.0 + alert_id)],
        Coverage.of({("ztf", 0): [offset]}),
    )


def test_the_ledger_accounts_for_every_offset():
    objects = MemoryObjects()
    for alert_id, offset in enumerate((10, 11, 14), 1):
        store_alert(objects, alert_id, offset)
    store_dead_letters(objects, "cutouts", Coverage.of({("ztf", 0): [12]}))
    for read in serving(make_app(Settings(), objects)):
        got = read("/v1/ledger")
        lines = {line["table"]: line for line in got.json()["ledger"]}
        cutouts = {
            "table": "cutouts",
            "topic": "ztf",
            "family": "ztf",
            "topic_id": None,
            "partition": 0,
            "low": 10,
            "high": 15,
            "received": 5,
            "stored": {"count": 3, "intervals": [[10, 12], [14, 15]]},
            "dead_lettered": {"count": 1, "intervals": [[12, 13]]},
            "accepted": {"count": 0, "intervals": []},
            "missing": {"count": 1, "intervals": [[13, 14]]},
            "deleted_with_topic": {"count": 0, "intervals": []},
            "in_flight": None,
            "not_messages": 0,
            "faults": [],
            "notes": [],
        }
        assert lines["cutouts"] == cutouts
        assert lines["detections"]["missing"] == {"count": 2, "intervals": [[12, 14]]}


def test_stored_data_is_visible_at_once():
    """A missing id lists again; a light curve grows when the listing is too old."""
    objects = MemoryObjects()
    for read in serving(make_app(Settings(refresh_seconds=0.0), objects)):
        assert read("/v1/alerts/1").status == 404
        assert read("/").status == 200
        store_alert(objects, 1, 1)
        assert read("/v1/alerts/1").status == 200
        store_alert(objects, 2, 2)
        assert len(read("/v1/objects/Z1/lightcurve").json()["detections"]) == 2
    objects = MemoryObjects()
    for read in serving(make_app(Settings(refresh_seconds=3600.0), objects)):
        assert read("/v1/alerts/1").status == 404
        store_alert(objects, 1, 1)
        assert read("/v1/alerts/1").status == 200


def test_cached_answers_do_not_wait_for_threads():
    """While all threads wait for the store, requests seen before are answered from memory."""
    inner = MemoryObjects()
    store_alert(inner, 1, 1)
    unblocked = threading.Event()
    unblocked.set()
    objects = Watched(inner, lambda number: unblocked.wait(60))
    known = ("/v1/objects/Z1/lightcurve", "/v1/objects/Z1/lightcurve?format=csv")
    for read in serving(make_app(Settings(refresh_seconds=3600.0), objects)):
        first = [read(path).data for path in known]
        unblocked.clear()
        with ThreadPoolExecutor(2 * SMALL_THREADS) as pool:
            cutouts = [
                pool.submit(Reader(read.url), "/v1/alerts/1/cutouts/science")
                for _ in range(2 * SMALL_THREADS)
            ]
            try:
                assert [read(path, timeout=10).data for path in known] == first
                assert not any(cutout.done() for cutout in cutouts)
            finally:
                unblocked.set()
            assert {cutout.result().status for cutout in cutouts} == {200}


BODIES = {"/v1/cone": b"10,-5"}
JOB = "/tap/async?LANG=ADQL&QUERY=SELECT+TOP+1+*+FROM+detections"
EXAMPLES = {
    "/v1/proofs/{survey}/{night}": "/v1/proofs/ztf/59400",
    "post /v1/proofs/{survey}/{night}/ranges": "/v1/proofs/ztf/59400/ranges",
    "/v1/proofs/{survey}/{night}/entries": "/v1/proofs/ztf/59400/entries",
    "/v1/alerts/{alert_id}/proof": f"/v1/alerts/{ZTF_ALERT}/proof",
    "/v1/cone": "/v1/cone?ra=10&dec=-5&radius=5",
    "post /v1/cone": "/v1/cone?radius=5",
    "/v1/links/alerts": f"/v1/links/alerts?ID={ZTF_ALERT}",
    "/v1/links/objects": f"/v1/links/objects?ID={ZTF_OBJECT}",
    "/v1/scs": "/v1/scs?RA=10&DEC=-5&SR=0.001",
    "/tap/sync": "/tap/sync?LANG=ADQL&QUERY=SELECT+TOP+1+*+FROM+detections",
    "/tap/tables/{table}": "/tap/tables/stampede.objects",
    "/v1/alerts/{alert_id}": f"/v1/alerts/{ZTF_ALERT}",
    "/v1/alerts/{alert_id}/cutouts/{kind}": f"/v1/alerts/{ZTF_ALERT}/cutouts/science",
    "/v1/alerts/{alert_id}/packet": f"/v1/alerts/{ZTF_ALERT}/packet",
    "/v1/alerts/{alert_id}/schema": f"/v1/alerts/{ZTF_ALERT}/schema",
    "/v1/alerts/{alert_id}/thumbnail": f"/v1/alerts/{BOTH}/thumbnail?survey=ztf",
    "/v1/objects/{object_id}/lightcurve": f"/v1/objects/{ZTF_OBJECT}/lightcurve",
    "/v1/objects/{object_id}/cutouts": f"/v1/objects/{ZTF_OBJECT}/cutouts",
    "/v1/moving/{designation}": f"/v1/moving/{BODY.replace(' ', '_')}",
    "/moving/{designation}": f"/moving/{BODY.replace(' ', '_')}",
    "/static/{file}": address("object.js"),
    "/objects/{object_id}": f"/objects/{LSST_OBJECT}",
    "/alerts/{alert_id}": f"/alerts/{ZTF_ALERT}",
    "/cone": "/cone?ra=10&dec=-5&radius=5",
    "/nights/{date}": "/nights/60800",
    "/proofs/{survey}/{night}": "/proofs/ztf/59400",
    "/find": f"/find?id={ZTF_OBJECT}",
    "/v1/cutouts": "/v1/cutouts",
    "/v1/lightcurves": "/v1/lightcurves",
}


def tap_examples(read: Reader) -> dict[str, str]:
    """A job for each route of jobs: some delete it."""

    def job(more: str = "") -> str:
        made = read(f"{JOB}{more}", "POST", b"")
        return str(made.headers["location"]).removeprefix(read.url)

    done = job("&PHASE=RUN")
    assert b"COMPLETED" in read(f"{done}?WAIT=60").data
    return {
        "post /tap/async": JOB,
        "/tap/async/{job}": job(),
        "post /tap/async/{job}": f"{job()}?ACTION=DELETE",
        "delete /tap/async/{job}": job(),
        "/tap/async/{job}/{part}": f"{job()}/phase",
        "post /tap/async/{job}/{part}": f"{job()}/phase?PHASE=ABORT",
        "/tap/async/{job}/results/result": f"{done}/results/result",
    }


def test_every_route_is_described_and_every_described_route_answers(read):
    api = read("/openapi.json").json()
    methods: dict[str, set[str]] = {}
    for route in (*ROUTES, *lazy_routes.ROUTES):
        if isinstance(route, Mount):  # routes of others, whose own documents describe them
            assert route.path in api["info"]["description"]
            continue
        path = route.path.replace(":path}", "}")  # a designation may have a slash
        methods.setdefault(path, set()).update(m.lower() for m in route.methods - {"HEAD"})
    assert {path: set(item) for path, item in api["paths"].items()} == methods
    examples = EXAMPLES | tap_examples(read)
    for path, item in api["paths"].items():
        for method, operation in item.items():
            body = BODIES.get(path, str(ZTF_ALERT).encode()) if method == "post" else None
            example = examples.get(f"{method} {path}", examples.get(path, path))
            got = read(example, method.upper(), body)
            assert str(got.status) in operation["responses"], path
            found = operation["responses"].get(str(got.status), {})
            assert {"200", "302"} & {*operation["responses"]}, path
            if got.status == 200:
                assert got.headers["content-type"].partition(";")[0] in found["content"]
            in_path = {p["name"] for p in operation["parameters"] if p["in"] == "path"}
            assert in_path == {part[1:-1] for part in path.split("/") if part.startswith("{")}


def test_every_column_is_described_with_its_unit(read):
    columns = read("/openapi.json").json()["components"]["schemas"]["Detection"]["properties"]
    assert list(columns) == [*DETECTION.names, "mag", "mag_err"]
    assert all(column["description"] for column in columns.values())
    assert columns["flux"]["description"].endswith("[nJy]")
    curve = read(f"/v1/objects/{ZTF_OBJECT}/lightcurve?magnitudes=true").json()
    json_types = {str: "string", bool: "boolean", int: "integer", float: "number"}
    for row in curve["detections"]:
        for name, value in row.items():
            if value is not None:
                assert json_types[type(value)] in columns[name]["type"], name


def test_every_column_of_an_observation_is_described(read):
    columns = read("/openapi.json").json()["components"]["schemas"]["Observation"]["properties"]
    rows = read(f"/v1/moving/{BODY}?magnitudes=true").json()["observations"]
    assert [*columns] == [*rows[0]]
    json_types = {str: "string", int: "integer", float: "number", type(None): "null"}
    for row in rows:
        for name, value in row.items():
            assert json_types[type(value)] in columns[name]["type"], name


def test_metrics_count_by_route_and_never_by_id(read):
    read(f"/v1/alerts/{ZTF_ALERT}/cutouts/science")
    read("/v1/alerts/1")
    text = read("/metrics").data.decode()
    assert 'stampede_read_seconds_count{route="get_cutout",status="200"}' in text
    assert 'stampede_read_seconds_count{route="get_alert",status="404"}' in text
    assert 'stampede_read_bytes_total{route="get_cutout"}' in text
    assert str(ZTF_ALERT) not in text


def failing_store(error: Exception) -> Watched:
    """A store that raises `error` for every request."""

    def fail(number: int) -> None:
        raise error

    return Watched(MemoryObjects(), fail)


def test_a_store_that_is_down_is_a_503_and_the_process_stays_alive():
    for read in serving(make_app(Settings(), failing_store(StoreDown("no answer")))):
        assert read("/health/liveness").status == 200
        for path in ("/health/readiness", "/v1/alerts/1", "/v1/ledger"):
            got = read(path, retries=False)
            assert got.status == 503, path
            assert got.json()["type"] == "urn:stampede:problem:store-down"
            assert got.headers["retry-after"]
        assert read("/v1/cutouts", "POST", b"1", retries=False).status == 503


def test_an_internal_error_shows_no_detail():
    for read in serving(make_app(Settings(), failing_store(RuntimeError("secret")))):
        got = read("/v1/alerts/1", retries=False)
        assert got.status == 500
        assert got.json()["type"] == "urn:stampede:problem:internal"
        assert b"secret" not in got.data


def test_ready(read):
    assert read("/health/readiness").json() == {"status": "ready"}


def test_a_small_query_does_not_wait_for_large_ones():
    """A small query is answered while all threads for large queries are blocked."""
    gate = threading.Event()

    def wait(key: str, start: int) -> None:
        if threading.current_thread().name.startswith("bulk") and key.startswith("packs/"):
            gate.wait(150)

    objects = BeforeGet(MemoryObjects(), wait)
    store_alert(objects, 1, 1)
    for read in serving(make_app(Settings(), objects)):
        large = [
            threading.Thread(target=read, args=("/v1/cutouts", "POST", b"1"), daemon=True)
            for _ in range(10)
        ]
        for thread in large:
            thread.start()
        try:
            assert read("/v1/alerts/1/cutouts/science", timeout=100).status == 200
            assert not gate.is_set()
            assert any(thread.is_alive() for thread in large)
        finally:
            gate.set()
            for thread in large:
                thread.join()


@pytest.mark.parametrize("path", ["/v1/alerts/1", "/"])
def test_an_empty_store_is_no_error(path):
    for read in serving(make_app(Settings(), MemoryObjects())):
        assert read(path).status in (200, 404)


def test_the_ledger_holds_up_no_light_curve():
    """Dead letters are many objects, and a request for the ledger waits for them."""
    inner = MemoryObjects()
    store_alert(inner, 1, 1)
    store_dead_letters(inner, "cutouts", Coverage.of({("ztf", 0): [12]}))
    unblocked = threading.Event()

    def wait(key: str, start: int) -> None:
        if key.startswith("deadletters/"):
            unblocked.wait(60)

    for read in serving(make_app(Settings(), BeforeGet(inner, wait))):
        with ThreadPoolExecutor(2 * SMALL_THREADS) as pool:
            pages = [
                pool.submit(Reader(read.url), path) for path in ("/v1/ledger", "/") * SMALL_THREADS
            ]
            try:
                light_curve = read("/v1/objects/Z1/lightcurve", timeout=20)
                assert len(light_curve.json()["detections"]) == 1
                assert not any(page.done() for page in pages)
            finally:
                unblocked.set()
            assert [page.result().status for page in pages] == [200] * len(pages)
