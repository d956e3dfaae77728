"""Which cluster the environment selects."""

import os
from pathlib import Path

import pytest

from e2e.cluster import choose
from e2e.cluster.existing import ExistingCluster
from e2e.cluster.kind import BuiltKind, Kind


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


def test_kind_if_docker_has_its_node_image(docker: Path) -> None:
    assert type(choose()) is Kind


@pytest.mark.parametrize("script", ["exit 1", '[ "$1" = info ]'], ids=["no daemon", "cannot pull"])
def test_a_node_image_is_built_if_none_can_be_pulled(docker: Path, script: str) -> None:
    docker.write_text(f"#!/bin/sh\n{script}\n")
    assert isinstance(choose(), BuiltKind)
