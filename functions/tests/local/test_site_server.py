import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import AdminClient
from minio import Minio

from stampede_local.ports import free_port
from tests.support.events.kafka_messages import consume, produce
from tests.support.waiting import eventually

# Another address of this machine than 127.0.0.1, like a pod's.
ELSEWHERE = "127.0.0.2"


@contextmanager
def site(name: str, data: Path, **env: object) -> Iterator[subprocess.Popen[str]]:
    """The process of a container, once its server answers."""
    variables = {name: str(value) for name, value in env.items()}
    with subprocess.Popen(
        [sys.executable, "-m", "stampede_local.site_server", name],
        env=os.environ | variables | {"SITE_DATA": str(data)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr
        try:
            output = ""
            for line in process.stderr:
                output += line
                if " at " in line:
                    break
            else:
                pytest.fail(output)
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Exit status, and the last output."""
    _, output = process.communicate(timeout=60)
    return process.returncode, output


@pytest.mark.integration
@pytest.mark.usefixtures("kafka_packages")
def test_kafka_is_reached_at_its_advertised_addresses_and_keeps_its_data(tmp_path: Path) -> None:
    port = free_port(4)
    addresses = [f"{ELSEWHERE}:{port + 2}", f"localhost:{port + 3}"]
    env = {"SITE_PORT": port, "SITE_ADVERTISED": ",".join(addresses)}
    with site("kafka", tmp_path, **env) as process:
        produce(addresses[0], "alerts", [b"one"])
        produce(addresses[1], "alerts", [b"two"])
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 0
    with site("kafka", tmp_path, SITE_TOPICS="alerts,more", **env) as process:
        admin = AdminClient({"bootstrap.servers": addresses[0]})
        eventually(lambda: {"alerts", "more"} <= admin.list_topics(timeout=30).topics.keys())
        assert consume(addresses[1], "alerts", 2) == [b"one", b"two"]
        (java,) = psutil.Process(process.pid).children()
        java.kill()
        status, output = ended(process)
        assert status == 1
        assert "kafka ended with status -9" in output


@pytest.mark.integration
@pytest.mark.usefixtures("ceph_packages")
def test_ceph_is_reached_at_another_address_with_the_configured_keys(tmp_path: Path) -> None:
    port, access, secret = free_port(2), "somebody", "somebody's own"
    keys = {"STAMPEDE_ACCESS_KEY": access, "STAMPEDE_SECRET_KEY": secret}
    with site("ceph", tmp_path, SITE_PORT=port, **keys) as process:
        client = Minio(f"{ELSEWHERE}:{port}", access, secret, secure=False)
        client.make_bucket("alerts")
        assert [bucket.name for bucket in client.list_buckets()] == ["alerts"]
        process.send_signal(signal.SIGTERM)
        assert ended(process)[0] == 0
