"""replicate, as a process, between two real S3 endpoints."""

import http.server
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events.cloudevents.s3_events import headers_of, stored_event
from stampede.handlers.apps import make_app
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.read.app import make_app as make_read
from stampede.store.compaction.compact import Policy, compact
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects, open_replica
from stampede.store.replication.site_local import of_one_site
from stampede.store.runs.schema import CUTOUTS, TABLES
from stampede.store.tables.table import Table
from stampede_bench.ingestion.replicate import joined
from stampede_local.ceph import LocalCeph
from stampede_local.ports import free_port
from stampede_local.process import wait_until
from stampede_local.tls import TlsCeph
from tests.support.read import read_service
from tests.support.store.located import stored_image
from tests.support.store.two_sites import all_same, environment, put_all, second_ceph, sites

__all__ = ["second_ceph", "sites"]  # fixtures
MIB = 1 << 20


def send_event(served, key: str) -> int:
    """The event of an object, as the Broker sends it."""
    event = stored_event("stampede", "us-east-1", key)
    response = served.http.request(
        "POST", served.url, body=event.data, headers=headers_of(event), timeout=500
    )
    return response.status


def fill(objects: Objects) -> list[str]:
    read_service.fill(
        objects,
        read_service.sample_cutouts(),
        read_service.sample_points(),
        Coverage.of({("ztf", 0): [1, 2, 5]}),
    )
    objects.put("alerts/ztf/x.parquet", b"raw alerts")
    return [info.key for info in objects.list("")]


PATHS = [
    f"/v1/alerts/{read_service.ZTF_ALERT}/cutouts/science",
    f"/v1/alerts/{read_service.LSST_ALERT}/cutouts/difference?format=png",
    f"/v1/alerts/{read_service.BOTH}?survey=ztf",
    f"/v1/objects/{read_service.ZTF_OBJECT}/lightcurve?format=csv",
    "/v1/ledger",
]


def test_the_second_site_reads_as_the_first(serve, sites: Settings) -> None:
    """With the events in any order, and each twice."""
    keys = fill(open_objects(sites))
    served = serve("replicate", **environment(sites))
    for key in (*reversed(keys), *keys):
        assert send_event(served, key) == 204
    assert all_same(sites)
    second = Settings(
        store=sites.replica,
        access_key=sites.replica_access_key,
        secret_key=sites.replica_secret_key.get_secret_value(),
    )
    responses = []
    for settings in (sites, second):
        app = make_read(settings, open_objects(settings))
        for read in read_service.serving(app):
            responses.append([(read(path).status, read(path).data) for path in PATHS])
    assert responses[0] == responses[1]
    assert {status for status, _ in responses[1]} == {200}


def test_a_second_site_that_is_down_is_503_until_it_is_up(
    serve, sites: Settings, second_ceph: LocalCeph
) -> None:
    keys = fill(open_objects(sites))
    served = serve("replicate", **environment(sites))
    second_ceph.gateway.stop()
    try:
        assert {send_event(served, key) for key in keys} == {503}
    finally:
        second_ceph.gateway.start()
    wait_until(second_ceph.answers, second_ceph.gateway)
    assert {send_event(served, key) for key in keys} == {204}
    assert all_same(sites)


def test_compaction_beside_it_loses_nothing(serve, sites: Settings) -> None:
    """Every run is merged and deleted without grace, while its events are in flight."""
    objects = open_objects(sites)
    served = serve("replicate", **environment(sites))
    tables = [Table(objects, spec) for spec in TABLES.values()]
    statuses: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        for number in range(12):
            put_all(objects, range(2 * number, 2 * number + 2))
            for info in list(objects.list("")):
                pool.submit(lambda key=info.key: statuses.append(send_event(served, key)))
            for table in tables:
                compact(table, datetime.now(UTC), Policy(fanout=2, grace=timedelta()))
            if number % 4 == 3:
                Reconciler(sites.model_copy(update={"reconcile": "replica"})).run()
    assert set(statuses) == {204}
    for spec in TABLES.values():
        compact(Table(objects, spec), datetime.now(UTC), Policy(fanout=2, grace=timedelta()))
    one = sites.model_copy(update={"reconcile": "replica,leftovers", "grace_seconds": 0})
    Reconciler(one).run()
    Reconciler(one).run()
    second = open_replica(sites)
    for spec in TABLES.values():
        assert len(Table(second, spec).coverage()) == 24
    for place in Table(second, CUTOUTS).lookup(range(24)).to_pylist():
        assert stored_image(second, place)
    here = {info.key for info in objects.list("") if not of_one_site(info.key)}
    assert here <= {info.key for info in second.list("")}


def test_a_killed_process_leaves_no_partial_object(serve, sites: Settings) -> None:
    """A process dies in the middle of large copies; another one completes them."""
    objects, sizes = open_objects(sites), [40 * MIB, 41 * MIB]
    for size in sizes:
        objects.put(f"alerts/ztf/{size}", bytes(size))
    served = serve("replicate", **environment(sites))
    with ThreadPoolExecutor(2) as pool:
        for size in sizes:
            pool.submit(send_event, served, f"alerts/ztf/{size}").add_done_callback(
                lambda done: None
            )
        uploads = open_replica(sites)
        while not uploads._minio._list_multipart_uploads(uploads.bucket).uploads:
            pass
        served.process.kill()
    assert {info.size for info in open_replica(sites).list("")} <= set(sizes)
    again = serve("replicate", **environment(sites))
    assert {send_event(again, f"alerts/ztf/{size}") for size in sizes} == {204}
    assert all_same(sites)


def test_a_large_object_takes_little_memory(serve, sites: Settings) -> None:
    objects, sizes = open_objects(sites), [MIB, 32 * MIB, 64 * MIB, 128 * MIB]
    served = serve("replicate", **environment(sites))
    most = []
    for size in sizes:
        objects.put(f"alerts/ztf/{size}", bytes(size))
        assert send_event(served, f"alerts/ztf/{size}") == 204
        most.append(most_memory(served))
    assert all_same(sites)
    print(
        {f"{size // MIB} MiB": f"{peak // MIB} MiB" for size, peak in zip(sizes, most, strict=True)}
    )
    assert most[-1] - most[0] < 64 * MIB
    assert most[-1] - most[1] < 24 * MIB


def test_many_large_objects_at_once_stay_within_copy_bytes(serve, sites: Settings) -> None:
    objects, keys = open_objects(sites), [f"alerts/ztf/{number}" for number in range(16)]
    for number, key in enumerate(keys):
        objects.put(key, bytes([number]) * (30 + number % 2 * 10) * MIB)  # whole, and in pieces
    served = serve("replicate", **environment(sites))
    idle = most_memory(served)
    with ThreadPoolExecutor(len(keys)) as pool:
        assert set(pool.map(lambda key: send_event(served, key), keys)) == {204}
    assert all_same(sites)
    print(f"{idle // MIB} MiB, then {most_memory(served) // MIB} MiB")
    assert most_memory(served) - idle < 1.5 * sites.copy_bytes


def most_memory(served) -> int:
    """The peak resident memory of the process."""
    status = Path(f"/proc/{served.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def test_too_many_events_at_once_get_429(
    serve, bucket: Settings, hanging: tuple[str, threading.Event]
) -> None:
    url, gate = hanging
    open_objects(bucket).put("a", b"x")
    served = serve("replicate", **environment(bucket), REPLICA=f"{url}/away", COPIES=1)
    with ThreadPoolExecutor(12) as pool:
        responses = [pool.submit(send_event, served, "a") for _ in range(12)]
        refused = [each.result() for each in islice(as_completed(responses), 12 - 4)]
        gate.set()
        assert refused == [429] * 8
        assert sorted(each.result() for each in responses) == [429] * 8 + [503] * 4


@pytest.fixture
def hanging() -> Iterator[tuple[str, threading.Event]]:
    """A server that responses 400, once its gate is open."""
    gate = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            gate.wait(100)
            self.send_response(400)
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", gate
    gate.set()
    server.shutdown()
    server.server_close()
    thread.join()


def test_other_events_are_refused(serve, bucket: Settings) -> None:
    served = serve("replicate", **environment(bucket), REPLICA="http://127.0.0.1:1/away")
    assert served.post(0, b"an alert").status == 400


@pytest.mark.parametrize(
    ("replica", "message"),
    [
        ("", "no second site"),
        ("file:///data/a", "the first site itself"),
        ("ftp://b", "no.* store"),
    ],
)
def test_a_wrong_second_site_is_an_error_at_once(replica: str, message: str) -> None:
    with pytest.raises(SetupError, match=message):
        make_app("replicate", Settings(store="file:///data/a", replica=replica))


def test_over_https(serve, bucket: Settings, ceph_packages: None, tmp_path: Path) -> None:
    objects = open_objects(bucket)
    objects.put("alerts/ztf/large", bytes(9 * MIB))
    keys = fill(objects)
    with TlsCeph(tmp_path / "tls", free_port(2), "memstore", 4) as second:
        sites = joined(bucket, second.settings("https", second.tls_port))
        open_replica(sites).ensure_bucket()
        trusting = environment(sites)
        served = serve("replicate", **trusting)
        assert {send_event(served, key) for key in keys} == {204}
        assert all_same(sites)
        # Without its certificate authority the second site is not trusted.
        del trusting["REPLICA_CA_FILE"]
        distrusting = serve("replicate", **trusting)
        open_objects(bucket).put("new", b"x")
        assert send_event(distrusting, "new") == 503
