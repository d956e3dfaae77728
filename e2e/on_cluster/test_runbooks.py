"""The commands of the runbooks, run on a release."""

import json
import os
import re
import subprocess

import pytest

from e2e.cluster.built.binaries import kube
from e2e.commands import until
from e2e.on_cluster.release import Release
from e2e.places import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

RUNBOOKS = ROOT / "docs" / "runbooks"
ALIASES = re.findall(r"^ +(alias .+)$", (RUNBOOKS / "README.md").read_text(), re.MULTILINE)
# Commands that cannot run here, by a word in them.
ELSEWHERE = {
    "helm": "test_upgrade.py goes back to an earlier chart",
    "top": "needs Kubernetes' metrics-server",
    "publish": "this release has no function `publish`",
}
# Commands whose status says that something is left to do: dead letters of damaged alerts.
WARN = {"toolbox stampede doctor", "toolbox stampede deadletters replay --all"}


def commands() -> list[tuple[str, str]]:
    """Runbook and text of each command in a runbook."""
    found = [
        (path.stem, text)
        for path in sorted(RUNBOOKS.glob("Stampede*.md"))
        for text in re.findall(r"`((?:k|toolbox) [^`]+)`", path.read_text())
        if not any(word in ELSEWHERE for word in re.split(r"\W+", text)) and text != "k describe"
    ]
    return sorted(set(found), key=found.index)


def wake(release: Release, component: str) -> None:
    """Wait for a pod of a function that is at rest: alerts, dead letters and timers start it."""
    release.stampede("simulate", "--alerts", 60, "--seed", 84, "--corrupt", 0.2)
    timer = f"pingsource/{release.name}-{component}"
    schedule = release.kubectl("get", timer, "--output=jsonpath={.spec.schedule}", check=False)
    if not schedule.status:  # it may be long until then
        set_schedule(release, timer, "* * * * *")
    until(lambda: all_started(release, component), 120, 1)
    if not schedule.status:
        set_schedule(release, timer, schedule.output.strip())


def all_started(release: Release, component: str) -> bool:
    """Whether there are pods, and none is still being created: that one would have no log."""
    pods = release.live_pods(f"app.kubernetes.io/component={component}")
    return bool(pods) and all(pod["status"]["phase"] == "Running" for pod in pods)


def set_schedule(release: Release, timer: str, schedule: str) -> None:
    patch = json.dumps({"spec": {"schedule": schedule}})
    release.kubectl("patch", timer, "--type=merge", "--patch", patch)


def test_every_command_of_a_runbook_works(release: Release) -> None:
    failed = []
    wake(release, "deadletters")
    release.wait_until_stored("--site", "replica")  # an audit of both sites is clean only then
    (pod, *_) = release.live_pods("app.kubernetes.io/component=source")
    for page, text in commands():
        line = text.replace("component=NAME", "component=read")
        line = re.sub(r"\b(POD|NAME)\b", pod["metadata"]["name"], line)
        status, output = shell(release, line)
        of = re.search(r"component=(\w+)", line)
        if of and ("No resources found" in output or "waiting to start" in output):
            wake(release, of[1])
            status, output = shell(release, line)
        print(f"{page}: {text}: {status}")
        if status > (text in WARN) or "No resources found" in output:
            failed.append((page, text, status, output[-600:]))
    assert not failed


def shell(release: Release, line: str) -> tuple[int, str]:
    """Status of a command, or of the first in a pipe, and all that it prints."""
    script = "\n".join(["shopt -s expand_aliases", *ALIASES, line, "exit ${PIPESTATUS[0]}"])
    backend = release.cluster.backend
    env = {
        "HOME": os.environ["HOME"],  # for kubectl's cache
        "KUBECONFIG": str(backend.kubeconfig),
        "PATH": f"{kube('kubectl').parent}:/usr/local/bin:/usr/bin:/bin",
    }
    done = subprocess.run(
        ["bash", "-c", script],
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=400,
    )
    return done.returncode, done.stdout
