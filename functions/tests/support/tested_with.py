"""What the tests ran with: a line of JSON for each server and suite, in build/tested-with.jsonl.

`tools/tested_with.py` makes docs/tested-with.md from these lines.
"""

import json
import os
import platform
import subprocess
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stampede_local.ceph import LocalCeph
from stampede_local.installer import KAFKA_VERSION

NAME = "tested-with"
ROOT = Path(__file__).parents[3]
FILE = ROOT / "build" / "tested-with.jsonl"
CLIENT = "client/tests"


class Software(NamedTuple):
    """A program that the tests ran with, and its version as it says it itself."""

    name: str
    version: str


def ceph_of(server: Any) -> list[Software]:
    """The version of a local Ceph: what its monitor says that its daemons run."""
    command = ["ceph", "-c", str(server.directory / "ceph.conf"), "versions", "--format", "json"]
    said = subprocess.run(command, capture_output=True, text=True, check=True)
    return [Software("Ceph", words.split()[2]) for words in json.loads(said.stdout)["overall"]]


def cluster_of(cluster: Any) -> list[Software]:
    """The versions of a cluster of the end-to-end tests, of Knative, and of its site's servers."""
    kubernetes = json.loads(cluster.kubectl("version", "--output", "json").output)
    site = ("--namespace", "site", "exec", "statefulset/ceph", "--container", "ceph", "--")
    found = [
        Software("Kubernetes", kubernetes["serverVersion"]["gitVersion"].removeprefix("v")),
        Software("Ceph", cluster.kubectl(*site, "radosgw", "--version").output.split()[2]),
        Software("Kafka", KAFKA_VERSION),
    ]
    for part in ("serving", "eventing"):
        for deployment in cluster.get("deployments", f"knative-{part}"):
            version = deployment["metadata"]["labels"].get("app.kubernetes.io/version")
            if version == "devel":  # images that were built here have the version as their tag
                image = deployment["spec"]["template"]["spec"]["containers"][0]["image"]
                version = image.rpartition(":")[2]
            if version:
                found.append(Software(f"Knative {part.title()}", version.removeprefix("v")))
                break
    return found


def gateway_of(server: Any) -> list[Software]:
    """The version of a versitygw, or of the Ceph whose gateway it is."""
    if isinstance(server, LocalCeph):
        return ceph_of(server)
    return [Software("versitygw", server.version())]


VERSIONS: Mapping[str, Callable[[Any], Iterable[Software]]] = {
    "ceph": ceph_of,
    "gateway": gateway_of,
    "kafka": lambda server: [Software("Kafka", KAFKA_VERSION)],
    "cluster": cluster_of,
}
"""What a fixture runs, by the fixture's name."""
VIA = {"bucket": "ceph", "gateway_bucket": "gateway"}
"""Fixtures that a test may ask for while it runs, and the server of each."""


class Recorder:
    """A plugin of pytest: counts the outcomes of tests by the software that they ran with."""

    def __init__(self, file: Path = FILE) -> None:
        self._file = file
        self._run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or uuid.uuid4().hex
        self._versions: dict[str, list[Software]] = {}
        self._asked: dict[str, set[str]] = {}
        self._counts: dict[tuple[Software, str], Counter[str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any, request: Any) -> Iterator[Any]:
        """Ask a server for its version when its fixture has started it."""
        value = yield
        if (name := fixturedef.argname) in VERSIONS:
            self._versions[name] = [*VERSIONS[name](value)]
        elif name in VIA:
            self._asked.setdefault(request.node.nodeid, set()).add(VIA[name])
        return value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Iterator[Any]:
        """Count the outcome of a test."""
        report = yield
        if report.when == "call" or (report.when == "setup" and not report.passed):
            suite = suite_of(item.path)
            for software in self._used(item, suite):
                self._counts.setdefault((software, suite), Counter())[report.outcome] += 1
        return report

    def _used(self, item: pytest.Item, suite: str) -> set[Software]:
        asked = set(getattr(item, "fixturenames", ())) | self._asked.pop(item.nodeid, set())
        used = {each for name in asked for each in self._versions.get(name, ())}
        if suite == CLIENT:
            used.add(Software("Python", platform.python_version()))
        return used

    def pytest_sessionfinish(self) -> None:
        """Write a line for each."""
        if not self._counts:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            for (software, suite), outcomes in self._counts.items():
                line = {
                    **{"software": software.name, "version": software.version, "suite": suite},
                    **{"date": f"{datetime.now(UTC):%Y-%m-%d}", "run": self._run},
                    **{name: outcomes[name] for name in ("passed", "failed", "skipped")},
                }
                file.write(json.dumps(line) + "\n")


def suite_of(test: Path) -> str:
    """The suite of a test file: its folder, up to three folders deep."""
    folders = test.parent.relative_to(ROOT) if test.is_relative_to(ROOT) else test.parent
    return "/".join(folders.parts[:3])


def register(config: pytest.Config) -> None:
    """Use the plugin, once."""
    if not config.pluginmanager.has_plugin(NAME):
        config.pluginmanager.register(Recorder(), NAME)
