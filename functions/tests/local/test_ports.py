import socket
import subprocess
import sys
from pathlib import Path

import pytest

from stampede.errors import SetupError
from stampede_local.ports import ServerPorts, free_port, require_free
from stampede_local.process import Process, wait_until


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    port = free_port()
    serve = ["-m", "http.server", "--bind", "127.0.0.1", str(port)]
    require_free(port)
    server = Process("server", [sys.executable, "-u", *serve], tmp_path / "log")
    server.start()
    try:
        wait_until(lambda: "Serving" in server.tail(), server)
        with pytest.raises(SetupError, match=f"port {port} "):
            require_free(port)
    finally:
        server.stop()


def test_no_two_processes_get_the_same_port(monkeypatch) -> None:
    """Two processes take their ports from the same twenty and share none."""
    ports = range(20_000, 20_020)
    code = f"""
from stampede_local import ports
ports._PORTS = range({ports.start}, {ports.stop})
print(*(ports.free_port(2) for _ in range(2)), flush=True)
input()
"""
    monkeypatch.setattr("stampede_local.ports._PORTS", ports)
    monkeypatch.setattr("stampede_local.ports._given", set())
    with subprocess.Popen(
        [sys.executable, "-c", code], text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        other_ports = {int(port) + i for port in other.stdout.readline().split() for i in range(2)}
        own_ports = {free_port() for _ in range(8)}
        assert len(other_ports | own_ports) == 4 + 8
        other.communicate("end\n")


def test_a_server_keeps_its_port(tmp_path: Path) -> None:
    file, default = tmp_path / "ports.json", free_port(2)
    ports = ServerPorts(file, {"ceph": default})
    assert ports.claim("ceph") == default
    ports.save()
    ports.close()
    again = ServerPorts(file, {"ceph": free_port(2)})
    assert again.claim("ceph") == default
    again.close()


def test_a_port_that_was_chosen_is_taken_or_refused(tmp_path: Path) -> None:
    usual, chosen = free_port(2), free_port(2)
    ports = ServerPorts(tmp_path / "ports.json", {"ceph": usual})
    assert ports.claim("ceph") == usual
    assert ports.claim("ceph", chosen) == chosen
    ports.save()
    ports.close()
    with socket.create_server(("127.0.0.1", chosen + 1)):
        again = ServerPorts(tmp_path / "ports.json", {"ceph": usual})
        with pytest.raises(SetupError, match=f"port {chosen + 1} of 127.0.0.1 is taken"):
            again.claim("ceph", chosen)
        again.close()
    assert ServerPorts(tmp_path / "ports.json", {"ceph": usual}).claim("ceph") == chosen


def test_two_systems_do_not_share_a_port(tmp_path: Path) -> None:
    default = {"ceph": free_port(2)}
    first, second = (ServerPorts(tmp_path / name, default) for name in ("first", "second"))
    assert first.claim("ceph") == default["ceph"]
    assert second.claim("ceph") != default["ceph"]
    first.close()
    third = ServerPorts(tmp_path / "third", default)
    assert third.claim("ceph") == default["ceph"]
    third.close()
    second.close()
