"""The store's keys are exchanged by the commands of the how-to while alerts arrive."""

import os
import re
import shlex
from pathlib import Path
from string import Template

import pytest

from e2e.commands import CommandResult, until
from e2e.on_cluster.kubernetes import Command
from e2e.on_cluster.load import reads, under_load
from e2e.on_cluster.release import Release
from e2e.places import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

PAGE = re.sub(r" \\\n +", " ", (ROOT / "docs" / "how-to" / "rotate-keys.md").read_text())
CREATE, SECRET, WAIT, DOCTOR, REMOVE = [
    line for line in re.findall(r"^ *\$ (.+)$", PAGE, re.MULTILINE) if "openssl" not in line
]
FIXED = "app.kubernetes.io/component in (source,toolbox)"
"""Pods that no autoscaler adds or removes."""


class Page:
    """Runs the page's commands, with the keys in its variables."""

    def __init__(self, release: Release, **keys: str) -> None:
        self._release, self._keys = release, keys
        backend = release.cluster.backend
        path = f"{backend.kubectl.parent}:{os.environ['PATH']}"
        self._shell = Command(Path("/bin/bash"), backend.kubeconfig, PATH=path, **keys)

    def run(self, line: str, check: bool = True) -> CommandResult:
        """Run a command, `radosgw-admin` in the pod of Ceph and all others by a shell."""
        program, *words = shlex.split(Template(line).safe_substitute(self._keys))
        if program == "radosgw-admin":
            return self._release.cluster.radosgw_admin(*words)
        return self._shell("-o", "pipefail", "-c", line, seconds=400, check=check)

    def exchange(self) -> None:
        """All steps in their order."""
        self.run(CREATE)
        self.run(SECRET)
        until(self._every_pod_has_them, 400, 2)
        until(self._the_doctor_agrees, 120, 2)
        self.run(REMOVE)

    def _every_pod_has_them(self) -> bool:
        """Each line is a pod and its key. A pod may end meanwhile, and output may be lost."""
        shown = [line.split() for line in self.run(WAIT, check=False).output.splitlines()]
        keys = {words[0]: words[-1] for words in shown if len(words) == 2}
        pods = {pod["metadata"]["name"] for pod in self._release.pods("read")}
        assert pods
        return pods <= keys.keys() and {*keys.values()} == {self._keys["NEW_ACCESS"]}

    def _the_doctor_agrees(self) -> bool:
        """It examines, and finds nothing wrong with the store; warnings of others are none here."""
        output = self.run(DOCTOR, check=False).output
        return bool(output.strip()) and "ERROR store" not in output


def pods_that_stay(release: Release) -> set[tuple[str, int]]:
    """Name and restarts of each pod that only a change of the release would replace."""
    return {
        (
            pod["metadata"]["name"],
            sum(c["restartCount"] for c in pod["status"]["containerStatuses"]),
        )
        for pod in release.live_pods(FIXED)
    }


def revisions(release: Release) -> set[str]:
    return {each["metadata"]["name"] for each in release.get("revisions.serving.knative.dev")}


def at_work(release: Release) -> set[str]:
    """Names of pods that ask the store all the time while alerts arrive and are read."""
    label = "app.kubernetes.io/component in (cutouts,lightcurves,read)"
    return {pod["metadata"]["name"] for pod in release.live_pods(label)}


def have_read_again(release: Release, pods: set[str]) -> bool:
    """Whether there are pods, and each logs that it took its keys from the files."""
    line = ("--all-containers", "--tail=-1")
    logs = [release.kubectl("logs", pod, *line, check=False).output for pod in pods]
    return bool(logs) and all("keys were read again" in log for log in logs)


def test_the_keys_of_the_store_are_exchanged(release: Release) -> None:
    keys = release.secret("ceph")
    old_access, old_secret = keys["access-key"], keys["secret-key"]
    page = Page(release, NEW_ACCESS="A" * 20, NEW_SECRET="s" * 40, OLD_ACCESS=old_access)
    back = Page(release, NEW_ACCESS=old_access, NEW_SECRET=old_secret, OLD_ACCESS="A" * 20)
    pods, made = pods_that_stay(release), revisions(release)
    with reads(release, 89):
        try:
            with under_load(release, range(900, 950)):
                before = at_work(release)
                page.exchange()
                stayed = before & at_work(release)  # a pod that started meanwhile has the new keys
                assert stayed
                until(lambda: have_read_again(release, stayed & at_work(release)), 120, 2)
            # All of it was stored while the old keys were refused.
        finally:
            back.exchange()
    assert pods_that_stay(release) == pods
    assert revisions(release) == made
