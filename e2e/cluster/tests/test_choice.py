"""Which cluster it is, and what is said where it cannot be had."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.cluster import Failed, build, choose, machine, node
from e2e.cluster.given import Given
from e2e.cluster.kind import Kind
from e2e.cluster.node import Node
from e2e.cluster.places import INGRESS_PORT, ROOT

KIND = ROOT / "e2e" / "kind.yaml"


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `docker` of ours, which answers as its first line says."""
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("STAMPEDE_E2E_KUBECONFIG", raising=False)
    return program


def test_yours_comes_first(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAMPEDE_E2E_KUBECONFIG", "/somewhere/config")
    monkeypatch.setenv("STAMPEDE_E2E_INGRESS", "192.0.2.7:80")
    cluster = choose()
    assert isinstance(cluster, Given)
    assert (cluster.kubeconfig, cluster.ingress) == (Path("/somewhere/config"), "192.0.2.7:80")
    cluster.up()
    cluster.down(wipe=True)
    with pytest.raises(Failed, match="not ours to restart"):
        cluster.restart()


def test_yours_must_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAMPEDE_E2E_INGRESS", raising=False)
    with pytest.raises(Failed, match="STAMPEDE_E2E_INGRESS=HOST:PORT"):
        Given(Path("/somewhere/config")).up()


def test_kind_where_docker_answers(docker: Path) -> None:
    assert isinstance(choose(), Kind)


def test_our_own_where_it_does_not(docker: Path) -> None:
    docker.write_text("#!/bin/sh\necho no daemon >&2\nexit 1\n")
    assert isinstance(choose(), Node)


def test_kind_has_the_ingress_where_it_is_looked_for() -> None:
    assert f"containerPort: {INGRESS_PORT}\n        hostPort: {INGRESS_PORT}\n" in KIND.read_text()
    assert Kind.ingress.endswith(f":{INGRESS_PORT}")


def test_a_node_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Failed, match="needs root"):
        Node().up()


def test_what_is_to_be_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "PACKAGES", {"no-such-program": "its-package"})
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Failed, match=r"sudo apt-get install .* its-package"):
        build.packages()


def test_another_process_of_the_same_number_is_not_the_node(place: Path) -> None:
    assert node._pid() is None
    born = machine.birth(os.getpid())
    node.PID.write_text(f"{os.getpid()} {born}")
    assert node._pid() == os.getpid()
    node.PID.write_text(f"{os.getpid()} {born - 1}")
    assert node._pid() is None
    assert not Node().running


def test_a_machine_that_is_a_node_already_is_left_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_cgroups", lambda: [place])
    with pytest.raises(Failed, match="STAMPEDE_E2E_KUBECONFIG"):
        Node()._start()


def test_the_command_tells_what_there_is() -> None:
    asked = subprocess.run(
        [sys.executable, "-m", "e2e.cluster", "--help"], cwd=ROOT, capture_output=True, text=True
    )
    assert asked.returncode == 0
    for command in ("up", "down", "status", "build", "load", "kubeconfig"):
        assert f"\n    {command}" in asked.stdout
    wrong = subprocess.run(
        [sys.executable, "-m", "e2e.cluster", "sideways"], cwd=ROOT, capture_output=True
    )
    assert wrong.returncode == 2


def test_a_node_that_is_down_takes_nothing_from_another(place: Path) -> None:
    """Link and cgroups have one name on a machine; they may be of a node in another place."""
    killed = place / f"{build._MAKING}1"
    killed.mkdir()
    Node().down(wipe=True)
    assert not killed.exists()


def test_what_a_killed_node_left_is_removed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    for function in ("unlink", "remove_cgroups"):
        monkeypatch.setattr(machine, function, lambda function=function: done.append(function))
    with subprocess.Popen(["sleep", "60"]) as dead:
        node.PID.write_text(f"{dead.pid} {machine.birth(dead.pid)}")
        dead.kill()
    (node.RUN / "containerd.sock").touch()
    Node().down()
    assert done == ["unlink", "remove_cgroups"]
    assert list(node.RUN.iterdir()) == []
