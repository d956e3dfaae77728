"""An API server accepts the objects of docs/how-to/https.md, and none with a wrong field."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.built.go_modules import pinned_sources
from e2e.commands import CommandResult, until
from e2e.on_cluster.kubernetes import Cluster, retry_if_overloaded
from e2e.places import ROOT

pytestmark = pytest.mark.timeout(600)

FILES = sorted((ROOT / "docs" / "how-to" / "https").glob("*.yaml"))
GATEWAY = "config/crd/standard/gateway.networking.k8s.io"
# Files of CRDs, and the modules that Traefik and Knative are built with.
KINDS = {
    "deploy/crds/crd-certificates.yaml": "github.com/cert-manager/cert-manager",
    "deploy/crds/crd-clusterissuers.yaml": "github.com/cert-manager/cert-manager",
    f"{GATEWAY}_gateways.yaml": "sigs.k8s.io/gateway-api",
    f"{GATEWAY}_httproutes.yaml": "sigs.k8s.io/gateway-api",
}


def definitions() -> Iterator[dict[str, Any]]:
    """The CRDs that the examples need and Knative does not have."""
    for path, module in KINDS.items():
        each = yaml.safe_load((pinned_sources(module) / path).read_text())
        each["metadata"].pop("labels", None)  # cert-manager's are templates
        yield each


@pytest.fixture(scope="module")
def kinds(cluster: Cluster) -> Iterator[None]:
    """The kinds that the cluster lacks; nothing here acts on them, and they go again."""

    def present() -> dict[str, bool]:
        """CRDs by name; whether each stays."""
        found = [each["metadata"] for each in cluster.get("crds", "default")]
        return {each["name"]: "deletionTimestamp" not in each for each in found}

    until(lambda: all(present().values()), 240, 1)  # those of an earlier run may be going
    there = present()
    missing = [each for each in definitions() if each["metadata"]["name"] not in there]
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": missing})
    try:
        if missing:
            cluster.kubectl("apply", "--server-side", "--filename", "-", stdin=given)
        names = [f"crd/{each['metadata']['name']}" for each in definitions()]
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
        yield
    finally:
        if missing:  # a busy API server takes minutes to remove a kind
            line = ("delete", "--ignore-not-found", "--wait=false", "--filename", "-")
            cluster.kubectl(*line, stdin=given)


def dry_run(cluster: Cluster, manifest: str) -> CommandResult:
    """What the API server says of a manifest, in a namespace that the tests' clusters have."""
    here = manifest.replace("namespace: traefik", "namespace: stampede")
    line = ("apply", "--server-side", "--dry-run=server", "--filename", "-")
    return retry_if_overloaded(lambda: cluster.kubectl(*line, stdin=here))


@pytest.mark.usefixtures("kinds")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_api_server_accepts_the_example_and_no_wrong_field(cluster: Cluster, path: Path) -> None:
    text = path.read_text()
    objects = list(yaml.safe_load_all(text))
    assert len(dry_run(cluster, text).output.splitlines()) == len(objects)
    for each in objects:
        each["spec"]["wrong"] = "field"
        with pytest.raises(AssertionError, match=r"\.spec\.wrong"):
            dry_run(cluster, yaml.safe_dump(each))
