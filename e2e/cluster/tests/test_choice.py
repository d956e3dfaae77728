"""Which cluster the environment selects."""

import os
from pathlib import Path

import pytest

from e2e.cluster import choose
from e2e.cluster.existing import ExistingCluster
from e2e.cluster.kind import Kind
from e2e.cluster.node import Node


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program `docker` in place of the real one; its exit status decides."""
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\nexit 0\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("STAMPEDE_E2E_KUBECONFIG", raising=False)
    return program


def test_an_existing_cluster_comes_first(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAMPEDE_E2E_KUBECONFIG", "/somewhere/config")
    monkeypatch.setenv("STAMPEDE_E2E_INGRESS", "192.0.2.7:80")
    cluster = choose()
    assert isinstance(cluster, ExistingCluster)
    assert (cluster.kubeconfig, cluster.ingress) == (Path("/somewhere/config"), "192.0.2.7:80")


def test_kind_if_docker_answers(docker: Path) -> None:
    assert isinstance(choose(), Kind)


def test_our_own_node_if_docker_does_not_answer(docker: Path) -> None:
    docker.write_text("#!/bin/sh\necho no daemon >&2\nexit 1\n")
    assert isinstance(choose(), Node)
