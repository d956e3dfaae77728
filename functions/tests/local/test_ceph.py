import io
import json
import re
import uuid
from pathlib import Path

import psutil
import pytest
from minio import Minio
from minio.error import S3Error

from stampede.errors import SetupError
from stampede_local.ceph import LocalCeph
from stampede_local.ports import free_port
from tests.support.store.ceph import minio_of

pytestmark = pytest.mark.usefixtures("ceph_packages")


def put(client: Minio, key: str, data: bytes) -> None:
    client.put_object(bucket_name="sky", object_name=key, data=io.BytesIO(data), length=len(data))


def get(client: Minio, key: str) -> bytes:
    response = client.get_object(bucket_name="sky", object_name=key)
    try:
        return response.read()
    finally:
        response.close()
        response.release_conn()


def test_it_keeps_its_data_and_leaves_no_process(tmp_path: Path) -> None:
    lines: list[str] = []
    server = LocalCeph(tmp_path / "a", free_port(2), gigabytes=2, progress=lines.append)
    with server:
        client = minio_of(server)
        client.make_bucket(bucket_name="sky")
        put(client, "first", b"1" * 20_000)
    pids = [process.pid for process in server.processes]
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert lines[-1] == f"S3 endpoint at {server.endpoint}"

    server.start()
    put(minio_of(server), "second", b"2" * 20_000)
    for process in server.processes:  # like a power failure
        process.kill()

    with LocalCeph(tmp_path / "a", free_port(2), gigabytes=2) as again:  # on another port
        client = minio_of(again)
        assert get(client, "first") == b"1" * 20_000
        assert get(client, "second") == b"2" * 20_000


def test_the_monitor_tells_a_restarted_osd_from_the_old_one(tmp_path: Path) -> None:
    """Also if both have the same pid, as in a container."""
    server = LocalCeph(tmp_path / "a", free_port(2), gigabytes=2)
    for _ in range(2):
        with server:
            pid = server.osds[0].pid
        boots = re.findall(r"osd\.0 v2:127\.0\.0\.1:\d+/(\d+) boot", server.monitor.log.read_text())
        assert int(boots[-1]) != pid
    assert len({*boots}) == len(boots) == 2


def test_its_keys_are_its_own_and_only_this_user_reads_them(tmp_path: Path) -> None:
    first, second = LocalCeph(tmp_path / "a", free_port(2)), LocalCeph(tmp_path / "b", free_port(2))
    assert first.keys != second.keys
    assert [len(key) for key in first.keys] == [20, 40]
    with LocalCeph(tmp_path / "a", free_port(2), gigabytes=2) as server:
        minio_of(server).make_bucket(bucket_name="sky")
        kept = server.keys
    assert (tmp_path / "a" / "cluster.json").stat().st_mode & 0o777 == 0o600
    again = LocalCeph(tmp_path / "a", free_port(2), gigabytes=2)
    assert again.keys == kept
    with again:
        stranger = LocalCeph(tmp_path / "a", again.port, keys=second.keys)
        with pytest.raises(S3Error, match=r"AccessDenied|InvalidAccessKeyId"):
            minio_of(stranger).bucket_exists(bucket_name="sky")


def test_two_clusters_run_side_by_side(ceph: LocalCeph, tmp_path: Path) -> None:
    first = minio_of(ceph)
    if not first.bucket_exists(bucket_name="sky"):
        first.make_bucket(bucket_name="sky")
    put(first, "here", b"1")
    with LocalCeph(tmp_path, free_port(2), "memstore", gigabytes=1) as other:
        second = minio_of(other)
        assert not second.bucket_exists(bucket_name="sky")
        second.make_bucket(bucket_name="sky")
        put(second, "here", b"2")
        assert (get(first, "here"), get(second, "here")) == (b"1", b"2")


def test_a_taken_port_is_refused_before_anything_is_touched(
    ceph: LocalCeph, tmp_path: Path
) -> None:
    with pytest.raises(SetupError, match=f"port {ceph.port + 1} of 127.0.0.1 is taken"):
        LocalCeph(tmp_path, ceph.port + 1, "memstore", gigabytes=1).start()
    assert not list(tmp_path.iterdir())


def test_a_failed_daemon_is_reported_with_its_log(tmp_path: Path) -> None:
    server = LocalCeph(tmp_path, free_port(2))
    identity = {"fsid": str(uuid.uuid4()), "mon_port": server.port + 1, "store": "bluestore"}
    (tmp_path / "cluster.json").write_text(json.dumps(identity))  # but the monitor has no data
    with pytest.raises(SetupError, match=r"(?s)ceph-mon ended with status .*does not exist"):
        server.start()
    assert not any(process.running for process in server.processes)


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mon").mkdir()
    (tmp_path / "mon" / "thesis.tex").write_text("precious")
    with pytest.raises(SetupError, match="holds something else"):
        LocalCeph(tmp_path, free_port(2)).start()
    assert (tmp_path / "mon" / "thesis.tex").exists()


def test_a_store_of_another_kind_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"store": "filestore"}')
    with pytest.raises(SetupError, match="on filestore, not bluestore"):
        LocalCeph(tmp_path, free_port(2)).start()


def test_lists_of_processes_name_the_daemons(ceph: LocalCeph) -> None:
    """Also those of another version, which `tools/ceph` starts by a loader of their own."""
    for process in ceph.processes:
        assert process.pid
        assert psutil.Process(process.pid).cmdline()[0] == process.name
