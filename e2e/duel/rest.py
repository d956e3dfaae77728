"""Waits until the pods rest, so that no contest pays for the one before it."""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

import psutil

# What works for alerts. Kubernetes and Knative themselves never rest.
WORKING = ("ceph-", "radosgw", "java", "python")
RESTING, NEARLY = 0.3, 0.6  # cores
LONG = 4  # windows with nearly none
WINDOW, PATIENCE = 5.0, 180.0  # seconds


def wait_until_rested(spent: Callable[[], Mapping[int, float]] | None = None) -> float:
    """Wait until all pods together use next to nothing; the cores they used last.

    That is `RESTING` cores for a window, or a little more for several: no work is under way then.

    Parameters
    ----------
    spent
        CPU seconds so far, by process; by default those of the node's pods.
    """
    spent = spent or cpu_of_pods
    deadline = time.monotonic() + PATIENCE
    before, since, nearly = spent(), time.monotonic(), 0
    while True:
        time.sleep(WINDOW)
        now, at = spent(), time.monotonic()
        # A process that is new has used all of its time within the window.
        used = sum(seconds - before.get(pid, 0.0) for pid, seconds in now.items())
        cores = used / (at - since)
        nearly = nearly + 1 if cores < NEARLY else 0
        if cores < RESTING or nearly == LONG or at >= deadline:
            return cores
        before, since = now, at


def cpu_of_pods() -> dict[int, float]:
    """CPU seconds of the processes of containers that work for alerts.

    The node's containers are processes of this machine, in PID namespaces of their own.
    """
    own, found = os.readlink("/proc/self/ns/pid"), {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if not process.name().startswith(WORKING):
                continue
            if os.readlink(f"/proc/{process.pid}/ns/pid") != own:
                times = process.cpu_times()
                found[process.pid] = times.user + times.system
    return found
