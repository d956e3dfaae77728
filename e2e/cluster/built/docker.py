"""A Docker daemon in Linux namespaces of its own, for machines without one that can pull.

Debian's ``docker.io`` runs it. It needs root. A veth link connects its network to this machine;
there is no route out. Killing its first process ends the daemon and all its containers.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping
from types import MappingProxyType

from e2e.cluster.built import debian, machine
from e2e.cluster.places import BUILT, CLUSTER, LOGS
from e2e.cluster.steps import Failed, run, step, tail, wait_until

DOCKER = CLUSTER / "docker"  # its images and containers
PID = CLUSTER / "docker.pid"
SOCKET = CLUSTER / "docker.sock"
LINK = machine.Link("stampede0", "10.99.0.1", "10.99.0.2")
CGROUP = "stampede-docker"
ENV = {
    "DOCKER_HOST": f"unix://{SOCKET}",
    # Debian's client before any newer one, which may refuse Debian's daemon.
    "PATH": f"/usr/bin:{os.environ['PATH']}",
}
_PACKAGES = {"/usr/sbin/dockerd": "docker.io", "iptables": "iptables", "ip": "iproute2"}
_LOG = LOGS / "dockerd.log"
_SAVED_SETTINGS = CLUSTER / "docker-settings.json"
_UNSHARE = (
    *("unshare", "--mount", "--pid", "--net", "--uts", "--ipc", "--propagation=private"),
    *("--mount-proc", "--fork"),
)
# /run in memory: other daemons' sockets and locks are elsewhere. docker-init reaps orphans.
_START = 'mount -t tmpfs tmpfs /run && ip link set lo up && exec docker-init -- dockerd "$@"'
_SECONDS = 60.0


def install() -> None:
    """Install Debian's Docker if it is missing. Its service, if Debian starts one, is not used."""
    debian.install_packages(_PACKAGES)


def advice() -> str:
    """What an ordinary user can do, who cannot start this daemon, to use the machine's own."""
    group = "sudo usermod --append --groups docker $USER; then log in again"
    if shutil.which("docker") is None:
        reason = f"this machine lacks docker.io: sudo apt-get install docker.io; {group}"
    elif not answers():
        reason = f"no Docker daemon answers you; if one runs: {group}"
    else:
        reason = "the Docker daemon that answers can neither pull kind's node image nor has it"
    return f"{reason}.\nA Docker daemon of our own needs root, for namespaces, mounts and cgroups"


def running() -> bool:
    """Whether the daemon's first process runs."""
    return machine.read_pid(PID) is not None


def start() -> None:
    """Start the daemon, unless it runs.

    Raises
    ------
    Failed
        It does not answer; the message has the end of its log.
    """
    if running():
        return
    stop()  # remove what a killed daemon left
    LOGS.mkdir(parents=True, exist_ok=True)
    machine.save_settings(_SAVED_SETTINGS)
    with step("Docker"):
        try:
            _start()
        except Failed:
            stop()
            raise


def stop() -> None:
    """Stop the daemon and all its containers; images and stopped containers stay."""
    if PID.exists():
        if pid := machine.read_pid(PID):
            os.kill(pid, signal.SIGKILL)
            stuck = Failed(f"process {pid} cannot be killed; is the disk stuck?")
            wait_until(lambda: not machine.read_pid(PID), 30, lambda: stuck)
        machine.unlink(LINK)
        machine.remove_cgroups(CGROUP)
        for each in (SOCKET, PID):
            each.unlink(missing_ok=True)
    machine.restore_settings(_SAVED_SETTINGS)


def _start() -> None:
    options = (
        f"--data-root={DOCKER}",
        f"--host=unix://{SOCKET}",
        "--pidfile=/run/docker.pid",
        "--storage-driver=overlay2",
        f"--cgroup-parent=/{CGROUP}",
        *("--add-runtime", f"lower={BUILT / 'kind_node' / 'runc'}", "--default-runtime=lower"),
    )
    with _LOG.open("wb") as log:
        unshare = subprocess.Popen(
            [*_UNSHARE, "sh", "-c", _START, "sh", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C must not stop the daemon
            env=os.environ | {"DOCKER_RAMDISK": "true"},
        )

    def failed() -> Failed:
        return Failed(f"Docker does not answer; the end of {_LOG}:\n{tail(_LOG)}")

    wait_until(lambda: bool(machine.children(unshare.pid)), 10, failed)
    (pid,) = machine.children(unshare.pid)
    PID.write_text(f"{pid} {machine.start_time(pid)}")
    machine.link(pid, LINK)
    inside = ("nsenter", f"--target={pid}", "--net", "ip")
    run(*inside, "address", "add", f"{LINK.node}/30", "dev", "eth0", log=LOGS / "link.log")
    run(*inside, "link", "set", "eth0", "up", log=LOGS / "link.log")
    wait_until(lambda: unshare.poll() is not None or answers(ENV), _SECONDS, failed)
    if unshare.poll() is not None:
        raise failed()


def answers(env: Mapping[str, str] = MappingProxyType({})) -> bool:
    """Whether a Docker daemon answers."""
    try:
        done = subprocess.run(
            ["docker", "info"], capture_output=True, timeout=30, env=os.environ | dict(env)
        )
    except (FileNotFoundError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
