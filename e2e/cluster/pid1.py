"""The first process of the node: ``python -m e2e.cluster.pid1``, in namespaces of its own.

It prepares the network and the mounts, starts the node's programs, restarts those that end, and
reaps orphans. When it is killed, the kernel ends every process, mount and link of the node.
"""

import os
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from e2e.cluster import config
from e2e.cluster.places import DATA, HOST_IP, HOST_PATHS, LOGS, NODE, NODE_IP, SERVICES, TEMPORARY


def main() -> None:
    """Run the node; never returns."""
    socket.sethostname(NODE)
    _mount()
    _network()
    servers = {_start(server, "wb"): server for server in config.servers()}
    while True:
        pid, status = os.wait()
        if server := servers.pop(pid, None):
            code = os.waitstatus_to_exitcode(status)
            print(f"{server.name} ended with status {code}; starting it again", flush=True)
            time.sleep(1)
            servers[_start(server, "ab")] = server


def _mount() -> None:
    """Mount the node's own directories over this machine's."""
    for directory in TEMPORARY:
        directory.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "tmpfs", str(directory))
    # Host paths of pods are kept with the node's files.
    for directory in (DATA, HOST_PATHS):
        directory.mkdir(parents=True, exist_ok=True)
    _run("mount", "--bind", str(DATA), str(HOST_PATHS))


def _network() -> None:
    """Set up the node's end of the link. There is no default route out of the cluster."""
    for _ in range(500):
        if "eth0" in (name for _, name in socket.if_nameindex()):
            break
        time.sleep(0.02)
    else:
        raise SystemExit("this node was given no link")  # the process that started it has ended
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{NODE_IP}/30", "dev", "eth0")
    _run("ip", "link", "set", "eth0", "up")
    # Without a route, kube-proxy's rules never see a packet to a service.
    _run("ip", "route", "add", SERVICES, "via", HOST_IP)
    # The kernel may create the bridge settings only when the first bridge is created.
    _run("ip", "link", "add", "probe", "type", "bridge")
    _run("ip", "link", "delete", "probe")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    with suppress(FileNotFoundError):
        Path("/proc/sys/net/bridge/bridge-nf-call-iptables").write_text("1")


def _start(server: config.Server, mode: str) -> int:
    with (LOGS / f"{server.name}.log").open(mode) as file:
        child = subprocess.Popen(
            server.command, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT
        )
    child.returncode = 0  # `main` waits for the process, not this object
    return child.pid


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
