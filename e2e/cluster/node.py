"""A node of our own: Kubernetes in Linux namespaces, without Docker or a registry.

The node needs root, a veth link, and cgroups for its pods. Killing its first process ends the
rest; `Node.down` removes what the kernel leaves.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from e2e.cluster import binaries, config, debian, images, knative, machine, pki
from e2e.cluster.kubectl import Kubectl
from e2e.cluster.places import (
    CONTAINERD,
    CONTAINERD_SOCKET,
    INGRESS_PORT,
    KUBECONFIG,
    LOGS,
    NODE_IP,
    PID,
    ROOT,
    RUN,
    TEMPORARY,
)
from e2e.cluster.steps import Failed, run, step, tail, wait_until

_REQUIRED = ("kube-apiserver", "kubelet")
_UNSHARE = (
    *("unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--propagation=private"),
    *("--mount-proc", "--fork"),
)
_SECONDS = 180.0  # the node takes 3 on an idle machine
_SAVED_SETTINGS = RUN / "settings.json"  # of this machine, before the node was started


class Node:
    """The node. Its state is in `RUN`, until it is wiped."""

    name = "a node of our own"
    kubeconfig = KUBECONFIG
    ingress = f"{NODE_IP}:{INGRESS_PORT}"

    @property
    def kubectl(self) -> Path:
        """The program kubectl."""
        return binaries.kube("kubectl")

    @property
    def _kubectl(self) -> Kubectl:
        return Kubectl(self.kubectl, self.kubeconfig)

    def build(self) -> None:
        """Build all programs and images, those that build quickly first."""
        if os.geteuid() != 0:
            raise Failed("a node of our own needs root, for namespaces, mounts and cgroups")
        debian.install_packages()
        binaries.coredns()
        binaries.kube("kubectl")
        images.build_all()

    def up(self) -> None:
        """Start the node with Knative, unless it is up.

        Raises
        ------
        Failed
            A part of it did not start.
        """
        self.build()
        must_start = not self.running
        try:
            if must_start:
                with step("the node"):
                    self._start()
            self.load(*images.build_all())
            knative.install(self._kubectl, self.ingress)
        except KeyboardInterrupt:
            if must_start:
                self.down()
            raise

    def down(self, wipe: bool = False) -> None:
        """Stop the node; its files stay. With `wipe`, only its images stay."""
        if PID.exists():  # otherwise the link and the cgroups are not ours
            if pid := _pid():
                os.kill(pid, signal.SIGKILL)
                stuck = Failed(f"process {pid} cannot be killed; is the disk stuck?")
                wait_until(lambda: not _pid(), 30, lambda: stuck)
            machine.unlink()
            machine.remove_cgroups()
            for each in RUN.glob(f"{CONTAINERD_SOCKET.name}*"):
                each.unlink()
            for each in TEMPORARY:
                with suppress(OSError):  # a directory that is not empty was not ours
                    each.rmdir()
            PID.unlink()
        machine.restore_settings(_SAVED_SETTINGS)
        if wipe:
            for each in RUN.glob("*"):
                if each != CONTAINERD:
                    shutil.rmtree(each) if each.is_dir() else each.unlink()
            shutil.rmtree(LOGS, ignore_errors=True)
            images.remove_unfinished()

    def restart(self) -> None:
        """Restart the node as after a power failure: kill everything at once, then start again."""
        self.down()
        self._start()
        knative.wait(self._kubectl, self.ingress)

    @property
    def running(self) -> bool:
        """Whether the node's first process runs."""
        return _pid() is not None

    def load(self, *archives: Path) -> None:
        """Load images from archives as ``docker save`` writes them, except those it has."""
        ctr = ("ctr", f"--address={CONTAINERD_SOCKET}", "--namespace=k8s.io", "images", "import")
        images.load_missing(
            archives,
            CONTAINERD / "loaded.json",
            lambda archive: run(*ctr, archive, log=LOGS / "load.log"),
        )

    def status(self) -> str:
        """One line about the node's state."""
        if not self.running:
            return "down"
        ready = "Ready" if knative.is_ready(self._kubectl) else "not Ready"
        return f"{ready}, process {_pid()}"

    def _start(self) -> None:
        self.down()  # remove what a killed node left
        if machine.has_pods():
            raise Failed(
                "this machine has pods of another Kubernetes node; "
                "name its kubeconfig in STAMPEDE_E2E_KUBECONFIG to use it"
            )
        RUN.mkdir(parents=True, exist_ok=True)
        LOGS.mkdir(parents=True, exist_ok=True)
        pki.write()
        config.write()
        machine.save_settings(_SAVED_SETTINGS)
        try:
            self._boot()
        except Failed:
            self.down()
            raise

    def _boot(self) -> None:
        with (LOGS / "pid1.log").open("wb") as log:
            unshare = subprocess.Popen(
                [*_UNSHARE, sys.executable, "-m", "e2e.cluster.pid1"],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must not stop the node
            )
        wait_until(lambda: bool(machine.children(unshare.pid)), 10, self._failure)
        (pid,) = machine.children(unshare.pid)
        PID.write_text(f"{pid} {machine.start_time(pid)}")
        try:
            machine.link(pid)
        except Failed as failed:
            raise (failed if unshare.poll() is None else self._failure()) from None
        begin = datetime.now(UTC)

        def wait_for(ready: Callable[[], bool]) -> None:
            wait_until(lambda: unshare.poll() is not None or ready(), _SECONDS, self._failure)
            if unshare.poll() is not None:
                raise self._failure()

        wait_for(lambda: knative.delete_leases(self._kubectl))
        wait_for(lambda: knative.is_ready(self._kubectl, begin))

    def _failure(self) -> Failed:
        """An error with the ends of the logs of programs that ended, or of the required ones."""
        first = LOGS / "pid1.log"
        ended = re.findall(r"^(\S+) ended with", first.read_text(), re.MULTILINE)
        logs = [first, *(LOGS / f"{name}.log" for name in sorted({*ended} or {*_REQUIRED}))]
        ends = "\n".join(f"{log}:\n{tail(log, 8)}" for log in logs if log.exists())
        return Failed(f"the node is not Ready; the ends of its logs:\n{ends}")


def _pid() -> int | None:
    """Process id of the node's first process, or None if that process has ended."""
    try:
        pid, start_time = map(int, PID.read_text().split())
    except (FileNotFoundError, ValueError):
        return None
    return pid if machine.start_time(pid) == start_time else None
