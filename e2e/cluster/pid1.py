"""The first process of the node: ``python -m e2e.cluster.pid1``, in namespaces of its own.

It prepares the network and the mounts, starts what a node runs, starts again what ends, and buries
orphans. When it is killed, the kernel ends every process, mount and link of the node.
"""

import os
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from e2e.cluster import config
from e2e.cluster.places import DATA, FORGOTTEN, HOST_IP, HOST_PATHS, LOGS, NODE, NODE_IP, SERVICES


def main() -> None:
    """Never returns."""
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
    """Places of the node's own, over this machine's."""
    for directory in FORGOTTEN:
        directory.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "tmpfs", str(directory))
    # What pods keep on the node is kept with the node.
    for directory in (DATA, HOST_PATHS):
        directory.mkdir(parents=True, exist_ok=True)
    _run("mount", "--bind", str(DATA), str(HOST_PATHS))


def _network() -> None:
    """The node's end of the link. There is no default route: nothing of the cluster gets out."""
    for _ in range(500):
        if "eth0" in (name for _, name in socket.if_nameindex()):
            break
        time.sleep(0.02)
    else:
        raise SystemExit("nobody has given this node a link")  # who started it is no more
    _run("ip", "link", "set", "lo", "up")
    _run("ip", "address", "add", f"{NODE_IP}/30", "dev", "eth0")
    _run("ip", "link", "set", "eth0", "up")
    # Some route must exist before kube-proxy's rules get to see a packet to a service.
    _run("ip", "route", "add", SERVICES, "via", HOST_IP)
    # The kernel may make the bridge's settings only once there is one.
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
    child.returncode = 0  # `main` waits for it, not its object
    return child.pid


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
