"""A node of our own: it must not touch what is not its own."""

import os
import subprocess
from pathlib import Path

import pytest

from e2e.cluster import Failed, images, machine, node
from e2e.cluster.node import Node


def test_a_node_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(Failed, match="needs root"):
        Node().up()


def test_another_process_with_the_same_id_is_not_the_node(place: Path) -> None:
    assert node._pid() is None
    started = machine.start_time(os.getpid())
    assert started is not None
    node.PID.write_text(f"{os.getpid()} {started}")
    assert node._pid() == os.getpid()
    node.PID.write_text(f"{os.getpid()} {started - 1}")
    assert node._pid() is None
    assert not Node().running


def test_a_machine_that_already_is_a_node_is_left_alone(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_cgroups", lambda: [place])
    with pytest.raises(Failed, match="STAMPEDE_E2E_KUBECONFIG"):
        Node()._start()


def test_stopping_a_node_that_is_down_leaves_other_nodes_alone(place: Path) -> None:
    """A link and cgroups of the same names may belong to a node in another directory."""
    unfinished = place / f"{images._SCRATCH_PREFIX}1"
    unfinished.mkdir()
    Node().down(wipe=True)
    assert not unfinished.exists()


def test_the_remains_of_a_killed_node_are_removed(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[str] = []
    for function in ("unlink", "remove_cgroups"):
        monkeypatch.setattr(machine, function, lambda function=function: called.append(function))
    with subprocess.Popen(["sleep", "60"]) as dead:
        node.PID.write_text(f"{dead.pid} {machine.start_time(dead.pid)}")
        dead.kill()
    (node.RUN / "containerd.sock").touch()
    Node().down()
    assert called == ["unlink", "remove_cgroups"]
    assert list(node.RUN.iterdir()) == []
