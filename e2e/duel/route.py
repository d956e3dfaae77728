"""A way from this machine to the pods of the cluster that is made here, while the duel sends."""

from collections.abc import Iterator
from contextlib import contextmanager

from e2e.cluster.built import docker, machine
from e2e.cluster.places import LOGS
from e2e.cluster.steps import Failed, run
from e2e.on_cluster.kubernetes import Cluster


@contextmanager
def to_pods(cluster: Cluster) -> Iterator[None]:
    """Route the addresses of pods through Docker's network namespace and the node.

    Raises `Failed` for another cluster than that of `e2e.cluster.built.docker`, and one of several
    nodes.
    """
    pid = machine.read_pid(docker.PID)
    if pid is None:
        raise Failed("the duel sends to pods, and knows the way only in the cluster it makes here")
    node, *more = cluster.get("nodes", "default")
    if more:
        raise Failed("the duel is on one node, and this cluster has workers: make e2e-down first")
    pods = node["spec"]["podCIDR"]
    (address,) = [
        each["address"] for each in node["status"]["addresses"] if each["type"] == "InternalIP"
    ]
    inside = ("nsenter", f"--target={pid}", "--net")
    log = LOGS / "route.log"
    accept = ("FORWARD", "--destination", pods, "--jump", "ACCEPT")
    back = ("FORWARD", "--source", pods, "--jump", "ACCEPT")
    run(*inside, "ip", "route", "replace", pods, "via", address, log=log)
    for rule in (accept, back):
        run(*inside, "iptables", "--insert", *rule, log=log)
    run("ip", "route", "replace", pods, "via", docker.LINK.node, log=log)
    try:
        yield
    finally:
        run("ip", "route", "delete", pods, log=log)
        for rule in (accept, back):
            run(*inside, "iptables", "--delete", *rule, log=log)
        run(*inside, "ip", "route", "delete", pods, log=log)
