"""An existing cluster is used, never changed."""

from pathlib import Path

import pytest

from e2e.cluster import Failed
from e2e.cluster.existing import ExistingCluster

KUBECONFIG = Path("/somewhere/config")


def test_it_is_never_started_or_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAMPEDE_E2E_INGRESS", "192.0.2.7:80")
    cluster = ExistingCluster(KUBECONFIG)
    cluster.up()
    cluster.down(wipe=True)
    with pytest.raises(Failed, match="not ours to restart"):
        cluster.restart()


def test_its_ingress_must_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAMPEDE_E2E_INGRESS", raising=False)
    with pytest.raises(Failed, match="STAMPEDE_E2E_INGRESS=HOST:PORT"):
        ExistingCluster(KUBECONFIG).up()
