"""What is printed when a test fails: the error, and what is wrong in the cluster."""

from pathlib import Path

import psutil
import pytest

from e2e.cluster import Failed, choose
from e2e.cluster.kubectl import Kubectl

LAST_LINES = 15  # of a pod's log
LAST_WARNINGS = 25


def print_failure(report: pytest.TestReport) -> None:
    """Print the error of a test, and the state of the cluster if there is one."""
    print(f"\n{report.nodeid} failed in its {report.when} after {report.duration:.0f} s")
    print(report.longreprtext)
    print(machine())
    backend = choose()
    try:
        if backend.running:
            print(trouble(Kubectl(backend.kubectl, backend.kubeconfig)))
    except Failed as failed:
        print(failed)


def machine() -> str:
    """What this machine lacks: CPU, memory or disk."""
    load = ", ".join(f"{each:.1f}" for each in psutil.getloadavg())
    memory, disk = psutil.virtual_memory(), psutil.disk_usage("/")
    waits = Path("/proc/pressure/io")  # not every kernel has it
    return (
        f"load {load}; {memory.available >> 20:,} of {memory.total >> 20:,} MiB of memory free; "
        f"{disk.free >> 30:,} GiB of disk free; {waits.read_text() if waits.exists() else ''}"
    )


def trouble(kubectl: Kubectl) -> str:
    """Nodes, pods that are not ready with the end of their logs, and the newest warnings."""
    lines = [kubectl("get", "nodes")]
    for pod in kubectl.get("pods"):
        status, metadata = pod["status"], pod["metadata"]
        ready = {each["type"]: each["status"] for each in status.get("conditions", ())}
        if ready.get("Ready") == "True" or status["phase"] == "Succeeded":
            continue
        name = ("--namespace", metadata["namespace"], metadata["name"])
        lines.append(f"--- pod {name[1]}/{name[2]} is {status['phase']}, but not ready")
        for container in status.get("containerStatuses", ()):
            lines.append(
                f"{container['name']}: {container['state']}, {container['restartCount']} restarts"
            )
        for previous in ("false", "true"):
            log = ("logs", *name, "--all-containers", "--prefix", f"--tail={LAST_LINES}")
            lines.append(_said(kubectl, *log, f"--previous={previous}"))
    events = ("get", "events", "--all-namespaces", "--sort-by=.lastTimestamp")
    warnings = _said(kubectl, *events, "--field-selector=type=Warning").splitlines()
    return "\n".join([*lines, "--- newest warnings", *warnings[-LAST_WARNINGS:]])


def _said(kubectl: Kubectl, *arguments: str) -> str:
    """The output of kubectl, or its error: a pod may have gone meanwhile."""
    try:
        return kubectl(*arguments)
    except Failed as failed:
        return str(failed)
