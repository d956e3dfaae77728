"""A function's process: its ports."""

import json
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

pytestmark = pytest.mark.integration  # starts processes


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


@contextmanager
def process(name: str, root, **settings: object):
    environment = {
        "STAMPEDE_STORE": f"file://{root}",
        "PYTHONPATH": ":".join(sys.path),
        **{f"STAMPEDE_{key.upper()}": str(value) for key, value in settings.items()},
    }
    command = [sys.executable, "-m", "stampede", "serve", name]
    running = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield running
    finally:
        running.terminate()
        assert running.wait(60) == 0


def get(port: int, path: str, patience: float = 30.0) -> tuple[int, str]:
    """Status and body, once the server listens."""
    deadline = time.monotonic() + patience
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as response:
                return response.status, response.read().decode()
        except HTTPError as error:
            return error.code, error.read().decode()
        except URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@pytest.mark.parametrize("name", ["read", "deadletters"])
def test_metrics_have_a_port_of_their_own(tmp_path, name):
    port, metrics_port = free_port(), free_port()
    with process(name, tmp_path, port=port, metrics_port=metrics_port):
        assert get(port, "/health/liveness")[0] == 200
        assert get(port, "/nothing")[0] == 404
        status, body = get(metrics_port, "/metrics")
        assert status == 200
        assert "stampede_events_total" in body
        if name == "read":
            assert 'stampede_read_seconds_count{route="none",status="404"}' in body
        for path in ("/metrics", "/metrics/", "/metrics?x=1", "//metrics"):
            status, body = get(port, path)
            assert status == 404, path
            assert "stampede_events_total" not in body
        assert get(metrics_port, "/v1/ledger")[0] == 404
        assert json.loads(get(port, "/metrics")[1])["status"] == 404


def test_metrics_share_the_port_by_default(tmp_path):
    port = free_port()
    with process("read", tmp_path, port=port):
        assert get(port, "/metrics")[0] == 200
