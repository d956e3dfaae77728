"""A release from a registry with a password: the chart by ``oci://``, the image by digest."""

import base64
import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.cluster.built.binaries import tool
from e2e.cluster.existing import ExistingCluster
from e2e.cluster.places import IMAGES
from e2e.commands import until
from e2e.http import get
from e2e.on_cluster.kubernetes import Cluster, Command
from e2e.on_cluster.nodes import workers
from e2e.on_cluster.release import CHART, INSTALL_SECONDS, Release
from e2e.places import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

NAME = "pulled"  # the release and its namespace
ON_NODE = "localhost:5000"  # the registry's address, for the node's containerd
KEYS = {
    "store.existingSecret": "",
    "store.accessKey": "second-site",
    "store.secretKey": "second-site-local",
    "functions.bulk.enabled": "false",
    "image.repository": f"{ON_NODE}/stampede",
    "image.pullSecrets[0]": "registry",
}


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[Command]:
    """A namespace with a registry and the credentials for it, and kubectl."""
    if isinstance(cluster.backend, ExistingCluster):
        pytest.skip("the registry is for the nodes that these tests start")
    cluster.kubectl("create", "namespace", NAME)
    try:
        given = (ROOT / "e2e" / "on_cluster" / "registry.yaml").read_text()
        cluster.kubectl("--namespace", NAME, "apply", "--filename", "-", stdin=given)
        cluster.kubectl(
            *("--namespace", NAME, "create", "secret", "docker-registry", "registry"),
            *(f"--docker-server={ON_NODE}", "--docker-username=pull"),
            "--docker-password=pull-local",
        )
        cluster.kubectl(
            "--namespace", NAME, "wait", "--for=condition=Ready", "pod/registry", "--timeout=60s"
        )
        (pod,) = cluster.get("pods", NAME, "--selector", "app=registry")
        others = [each for each in workers(cluster) if each.name != pod["spec"]["nodeName"]]
        with ExitStack() as closed:  # the others would look for the registry at their own address
            for worker in others:
                closed.enter_context(worker.cordoned())
            yield cluster.kubectl
    finally:
        cluster.kubectl("delete", "namespace", NAME, seconds=INSTALL_SECONDS)


@pytest.fixture
def address(cluster: Cluster, namespace: Command) -> Iterator[str]:
    """The registry's address on this machine."""
    line = (cluster.backend.kubectl, f"--kubeconfig={cluster.backend.kubeconfig}")
    forward = ("--namespace", NAME, "port-forward", "pod/registry", ":5000", "--address=127.0.0.1")
    with subprocess.Popen([*line, *forward], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()  # Forwarding from 127.0.0.1:40123 -> 5000
            yield said.split()[2]
        finally:
            process.terminate()


def test_a_release_from_a_registry(
    cluster: Cluster, namespace: Command, address: str, tmp_path: Path
) -> None:
    login = base64.b64encode(b"pull:pull-local").decode()
    logins = tmp_path / "config.json"  # crane finds it by DOCKER_CONFIG
    logins.write_text(json.dumps({"auths": {address: {"auth": login}}}))
    crane = Command(tool("crane"), cluster.backend.kubeconfig, DOCKER_CONFIG=str(tmp_path))
    image = f"{address}/stampede:0.1.0"
    crane("push", IMAGES / "stampede.tar", image, seconds=300)
    # Another image than the one on the node: the kubelet gives an image that was pulled with a
    # password to nobody else, whatever its name (KubeletEnsureSecretPulledImages).
    crane("mutate", image, "--label", "from=registry", "--tag", image, seconds=120)
    digest = crane("digest", image).output.strip()
    stranger = Command(tool("crane"), cluster.backend.kubeconfig, DOCKER_CONFIG="/nonexistent")
    assert stranger("digest", image, check=False).status  # only the login is another
    assert_not_pulled_without_the_secret(namespace, f"{ON_NODE}/stampede@{digest}")

    registry = (f"--registry-config={logins}", "--plain-http")
    cluster.helm("package", CHART, "--destination", tmp_path)
    (package,) = tmp_path.glob("stampede-*.tgz")
    cluster.helm("push", package, f"oci://{address}/charts", *registry)
    sets = [f"--set={key}={value}" for key, value in KEYS.items()]
    cluster.helm(
        *("install", NAME, f"oci://{address}/charts/stampede", *registry, "--namespace", NAME),
        *("--values", ROOT / "e2e" / "on_cluster" / "values-second.yaml", *sets),
        *(f"--set=image.digest={digest}", "--wait", "--timeout", "6m"),
        seconds=INSTALL_SECONDS,
    )
    release = Release(cluster, NAME, "values-second.yaml")
    release.wait_until_ready()
    assert get(f"{release.url('read')}/health/liveness")
    (pod, *_) = release.pods("read")
    pulled = {each["name"]: each["imageID"] for each in pod["status"]["containerStatuses"]}
    assert f"{ON_NODE}/stampede@{digest}" in pulled.values(), pulled
    release.uninstall()


def assert_not_pulled_without_the_secret(kubectl: Command, image: str) -> None:
    """Start a pod that has no credentials."""
    kubectl("--namespace", NAME, "run", "stranger", f"--image={image}", "--restart=Never")
    waiting = "--output=jsonpath={.status.containerStatuses[0].state.waiting.message}"
    until(
        lambda: "401" in kubectl("--namespace", NAME, "get", "pod", "stranger", waiting).output,
        60,
        1,
    )
    kubectl("--namespace", NAME, "delete", "pod", "stranger", "--now")
