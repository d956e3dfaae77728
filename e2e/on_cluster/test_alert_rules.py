"""Alerts of the chart's rules fire in a real Prometheus while a fault lasts, and end with it."""

import base64
import json
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.background import repeat
from e2e.cluster.built.binaries import KUBERNETES
from e2e.cluster.built.go_modules import pinned_version
from e2e.commands import until
from e2e.on_cluster.load import assert_all_of_it_is_stored, simulate
from e2e.on_cluster.release import CHART, Release
from e2e.prometheus import Prometheus, prometheus

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

METRICS_PORT = 9400  # of functions
SECONDS_A_MINUTE = 2  # of the rules: the test does not wait for ten minutes
# The alert that fires without a server, and the seed and number of alerts that are sent.
FAULTS = {"ceph": ("StampedeStoreDown", 86, 200), "kafka": ("StampedeSourceDown", 87, 100)}
FIRES = 120  # seconds; some begin with the next pass of `reconcile`


def rules(release: Release) -> dict[str, Any]:
    """The release's alert rules, for a clock in which a minute has few seconds."""
    only = ("--show-only", "templates/monitoring.yaml", "--set", "monitoring.rules.enabled=true")
    version = f"--kube-version={pinned_version(KUBERNETES)}"  # helm asks no cluster here
    rendered = release.cluster.helm(
        *("template", release.name, CHART, "--namespace", release.name, "--values", release.values),
        *(*only, version, "--set", "eventKey.value=of-this-rendering"),  # nor for its key
    )
    (rule,) = [
        each for each in yaml.safe_load_all(rendered.output) if each["kind"] == "PrometheusRule"
    ]
    text = yaml.safe_dump(rule["spec"])
    units = {"m": SECONDS_A_MINUTE, "h": 60 * SECONDS_A_MINUTE}
    return yaml.safe_load(
        re.sub(r"\b(\d+)([mh])\b", lambda found: f"{int(found[1]) * units[found[2]]}s", text)
    )


def targets(release: Release, server: str) -> list[dict[str, Any]]:
    """The pods of the release that the chart's PodMonitors name, by way of Kubernetes' API."""
    found = []
    for pod in release.live_pods(f"app.kubernetes.io/instance={release.name}"):
        name, labels = pod["metadata"]["name"], pod["metadata"]["labels"]
        declared = [port for each in pod["spec"]["containers"] for port in each.get("ports", ())]
        ports = {port.get("name"): port["containerPort"] for port in declared}
        if not ports.keys() & {"user-port", "http"}:
            continue
        # Kubernetes' proxy takes the name `http` of a pod's port for port 80.
        port = METRICS_PORT if "user-port" in ports else ports["http"]
        path = f"/api/v1/namespaces/{release.name}/pods/{name}:{port}/proxy/metrics"
        own = {"namespace": release.name, "pod": name, "instance": name, "__metrics_path__": path}
        own["component"] = labels["app.kubernetes.io/component"]
        if source := labels.get("stampede/source"):
            own["source"] = source
        found.append({"targets": [server], "labels": own})
    return found


def configuration(release: Release, directory: Path, given: dict[str, Any]) -> dict[str, Any]:
    """Prometheus' configuration, with the kubeconfig `given`.

    Debian's Prometheus cannot ask Kubernetes for targets, so it reads them from a file.
    """
    cluster, user = given["clusters"][0]["cluster"], given["users"][0]["user"]
    tls = {
        "ca_file": cluster["certificate-authority-data"],
        "cert_file": user["client-certificate-data"],
        "key_file": user["client-key-data"],
    }
    for name, data in tls.items():
        (directory / name).write_bytes(base64.b64decode(data))
    (directory / "rules.yml").write_text(yaml.safe_dump(rules(release)))
    return {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(directory / "rules.yml")],
        "scrape_configs": [
            {
                "job_name": "stampede",
                "scheme": "https",
                "tls_config": {name: str(directory / name) for name in tls},
                "file_sd_configs": [{"files": [str(directory / "targets.json")]}],
            }
        ],
    }


@contextmanager
def without(release: Release, server: str) -> Iterator[None]:
    """Take a server of the site away until the ``with`` block ends."""
    scale = ("--namespace", "site", "scale", f"statefulset/{server}")
    release.cluster.kubectl(*scale, "--replicas=0")
    try:
        yield
    finally:
        release.cluster.kubectl(*scale, "--replicas=1")


@pytest.fixture(scope="module")
def watched(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """A Prometheus that collects the metrics of all pods and evaluates the release's rules."""
    directory = tmp_path_factory.mktemp("watched")
    given = yaml.safe_load(release.cluster.backend.kubeconfig.read_text())
    server = given["clusters"][0]["cluster"]["server"].removeprefix("https://")

    def look() -> None:
        """Prometheus notices a file that is renamed, and never reads half of one."""
        partial = directory / "targets.partial"
        partial.write_text(json.dumps(targets(release, server)))
        partial.rename(directory / "targets.json")

    look()
    with (
        repeat(look, pause=2),
        prometheus(directory / "data", configuration(release, directory, given)) as started,
    ):
        until(lambda: started.query("stampede_source_ready"), 60, 1)
        yield started


def wait(condition: Callable[[], object], watched: Prometheus) -> None:
    """Wait until a condition holds; the message names the alerts that fire."""
    try:
        until(condition, FIRES, 1)
    except AssertionError:
        raise AssertionError(f"these fire: {watched.firing()}") from None


def test_dead_letters_fire_and_end(release: Release, watched: Prometheus) -> None:
    wait(lambda: "StampedeDeadLetters" not in watched.firing(), watched)
    release.stampede("simulate", "--alerts", 40, "--seed", 85, "--corrupt", 0.3)
    wait(lambda: "StampedeDeadLetters" in watched.firing(), watched)
    wait(lambda: "StampedeDeadLetters" not in watched.firing(), watched)


@pytest.mark.parametrize("server", FAULTS)
def test_a_server_is_down_and_comes_back(
    release: Release, watched: Prometheus, server: str
) -> None:
    alert, seed, count = FAULTS[server]
    wait(lambda: alert not in watched.firing(), watched)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(simulate, release, seed, count, 5)
        until(lambda: release.pods("cutouts"), 60, 1)
        with without(release, server):
            wait(lambda: alert in watched.firing(), watched)
        sending.result()
    wait(lambda: alert not in watched.firing(), watched)
    assert_all_of_it_is_stored(release, seed, count)
