"""A node of our own: Kubernetes in namespaces of this machine, without Docker or a registry.

What it needs of the machine is root, a veth link, and cgroups for its pods; all of it is gone when
its first process is killed, and what the kernel does not take away, `Node.down` does.
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

from e2e.cluster import build, config, knative, machine, pki
from e2e.cluster.places import (
    CONTAINERD,
    CONTAINERD_SOCKET,
    FORGOTTEN,
    INGRESS_PORT,
    KUBECONFIG,
    LOGS,
    NODE_IP,
    PID,
    ROOT,
    RUN,
)
from e2e.cluster.steps import Failed, run, step, tail, wait_until

_VITAL = ("kube-apiserver", "kubelet")
_UNSHARE = (
    *("unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--propagation=private"),
    *("--mount-proc", "--fork"),
)
_SECONDS = 180.0  # it takes 3 on an idle machine
_FOUND = RUN / "settings.json"  # of the machine, before it


class Node:
    """The node; its state is in `RUN` and outlives it until it is wiped."""

    name = "a node of our own"
    kubeconfig = KUBECONFIG
    ingress = f"{NODE_IP}:{INGRESS_PORT}"

    @property
    def kubectl(self) -> Path:
        """The program."""
        return build.kube("kubectl")

    @property
    def _kubectl(self) -> knative.Kubectl:
        return knative.Kubectl(self.kubectl, self.kubeconfig)

    def build(self) -> None:
        """Build all that it is made of, the quick things first."""
        if os.geteuid() != 0:
            raise Failed("a node of our own needs root, for namespaces, mounts and cgroups")
        build.packages()
        build.coredns()
        build.kube("kubectl")
        build.images()

    def up(self) -> None:
        """Bring it up with Knative; nothing is done if it is.

        Raises
        ------
        Failed
            A part of it did not come up.
        """
        self.build()
        begun = not self.running
        try:
            if begun:
                with step("the node"):
                    self._start()
            self.load(*build.images())
            knative.install(self._kubectl, self.ingress)
        except KeyboardInterrupt:
            if begun:
                self.down()
            raise

    def down(self, wipe: bool = False) -> None:
        """End it, and leave nothing of it but files: with `wipe` no more than its images."""
        if PID.exists():  # else link and cgroups are not ours
            if pid := _pid():
                os.kill(pid, signal.SIGKILL)
                stuck = Failed(f"process {pid} cannot be killed; is the disk stuck?")
                wait_until(lambda: not _pid(), 30, lambda: stuck)
            machine.unlink()
            machine.remove_cgroups()
            for each in RUN.glob(f"{CONTAINERD_SOCKET.name}*"):
                each.unlink()
            for each in FORGOTTEN:
                with suppress(OSError):  # else there was something in it before
                    each.rmdir()
            PID.unlink()
        machine.restore_settings(_FOUND)
        if wipe:
            for each in RUN.glob("*"):
                if each != CONTAINERD:
                    shutil.rmtree(each) if each.is_dir() else each.unlink()
            shutil.rmtree(LOGS, ignore_errors=True)
            build.clean()

    def restart(self) -> None:
        """As if its machine had lost power: everything ends at once, and is started again."""
        self.down()
        self._start()
        knative.wait(self._kubectl, self.ingress)

    @property
    def running(self) -> bool:
        """Whether its first process is there."""
        return _pid() is not None

    def load(self, *archives: Path) -> None:
        """Give it images out of `docker save` archives; those it has are not given again."""
        ctr = ("ctr", f"--address={CONTAINERD_SOCKET}", "--namespace=k8s.io", "images", "import")
        build.load(
            archives,
            CONTAINERD / "loaded.json",
            lambda archive: run(*ctr, archive, log=LOGS / "load.log"),
        )

    def status(self) -> str:
        """One line about it."""
        if not self.running:
            return "down"
        ready = "Ready" if knative.is_ready(self._kubectl) else "not Ready"
        return f"{ready}, process {_pid()}"

    def _start(self) -> None:
        self.down()  # what is left of a node that was killed
        if machine.has_pods():
            raise Failed(
                "this machine has pods of another Kubernetes node; "
                "name its kubeconfig in STAMPEDE_E2E_KUBECONFIG to use it"
            )
        RUN.mkdir(parents=True, exist_ok=True)
        LOGS.mkdir(parents=True, exist_ok=True)
        pki.write()
        config.write()
        machine.keep_settings(_FOUND)
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
                start_new_session=True,  # Ctrl-C is for us, not for the node
            )
        wait_until(lambda: bool(machine.children(unshare.pid)), 10, self._failure)
        (pid,) = machine.children(unshare.pid)
        PID.write_text(f"{pid} {machine.birth(pid)}")
        try:
            machine.link(pid)
        except Failed as failed:
            raise (failed if unshare.poll() is None else self._failure()) from None
        begin = datetime.now(UTC)

        def wait_for(ready: Callable[[], bool]) -> None:
            wait_until(lambda: unshare.poll() is not None or ready(), _SECONDS, self._failure)
            if unshare.poll() is not None:
                raise self._failure()

        wait_for(lambda: knative.forget_leaders(self._kubectl))
        wait_for(lambda: knative.is_ready(self._kubectl, begin))

    def _failure(self) -> Failed:
        """With the logs of what ended; if nothing did, of what nothing goes without."""
        first = LOGS / "pid1.log"
        ended = re.findall(r"^(\S+) ended with", first.read_text(), re.MULTILINE)
        logs = [first, *(LOGS / f"{name}.log" for name in sorted({*ended} or {*_VITAL}))]
        ends = "\n".join(f"{log}:\n{tail(log, 8)}" for log in logs if log.exists())
        return Failed(f"the node is not Ready; the ends of its logs:\n{ends}")


def _pid() -> int | None:
    """Process id of the node's first process; None where that process is no more."""
    try:
        pid, birth = map(int, PID.read_text().split())
    except (FileNotFoundError, ValueError):
        return None
    return pid if machine.birth(pid) == birth else None
