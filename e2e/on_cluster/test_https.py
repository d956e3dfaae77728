"""An API server accepts the objects of docs/how-to/https.md, and none with a wrong field."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.cluster.built.go_modules import pinned_sources
from e2e.commands import CommandResult
from e2e.on_cluster.kubernetes import Cluster
from e2e.places import ROOT

pytestmark = pytest.mark.timeout(300)

FILES = sorted((ROOT / "docs" / "how-to" / "https").glob("*.yaml"))
KINDS = {
    "github.com/cert-manager/cert-manager": "deploy/crds/crd-*.yaml",
    "sigs.k8s.io/gateway-api": "config/crd/standard/*.yaml",
}


def definitions() -> Iterator[dict[str, Any]]:
    """The CRDs of cert-manager and of the Gateway API."""
    for module, pattern in KINDS.items():
        for path in sorted(pinned_sources(module).glob(pattern)):
            for each in yaml.safe_load_all(path.read_text()):
                each["metadata"].pop("labels", None)  # cert-manager's are templates
                yield each


@pytest.fixture(scope="module")
def kinds(cluster: Cluster) -> Iterator[None]:
    """The kinds that the cluster lacks; nothing here acts on them, and they go again."""
    named = {each["metadata"]["name"]: each for each in definitions()}
    assert len(named) > len(KINDS)
    there = {each["metadata"]["name"] for each in cluster.get("crds", "default")}
    missing = [each for name, each in named.items() if name not in there]
    if not missing:
        yield
        return
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": missing})
    try:
        cluster.kubectl("apply", "--server-side", "--filename", "-", stdin=given)
        cluster.kubectl(
            *("wait", "--for=condition=Established", "--timeout=60s"),
            *(f"crd/{each['metadata']['name']}" for each in missing),
        )
        yield
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "--filename", "-", stdin=given)


def dry_run(cluster: Cluster, manifest: str, check: bool = True) -> CommandResult:
    """What the API server says of a manifest, in a namespace that the tests' clusters have."""
    here = manifest.replace("namespace: traefik", "namespace: stampede")
    line = ("apply", "--server-side", "--dry-run=server", "--filename", "-")
    return cluster.kubectl(*line, stdin=here, check=check)


@pytest.mark.usefixtures("kinds")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_api_server_accepts_the_example_and_no_wrong_field(cluster: Cluster, path: Path) -> None:
    text = path.read_text()
    accepted = dry_run(cluster, text).output.splitlines()
    objects = list(yaml.safe_load_all(text))
    assert len(accepted) == len(objects)
    for each in objects:
        each["spec"]["wrong"] = "field"
        refused = dry_run(cluster, yaml.safe_dump(each), check=False)
        assert refused.status, refused.output
        assert ".spec.wrong" in refused.output
