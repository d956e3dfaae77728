"""A Docker daemon that builds images on a machine where none can pull the base image.

It is Debian's, in Linux namespaces of its own but for the network: steps that fetch packages use
this machine's. Containers get no network of their own, so it changes no rule of a firewall.
"""

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster.built import docker, machine
from e2e.cluster.places import BUILT
from e2e.commands import until
from e2e.places import ROOT

BASE = "dev.local/debian:build"
_CERTIFICATES = Path("/usr/local/share/ca-certificates")  # of authorities that this machine trusts
_CGROUP = "stampede-docker-build"
_UNSHARE = ("unshare", "--mount", "--pid", "--propagation=private", "--mount-proc", "--fork")
_START = 'mount -t tmpfs tmpfs /run && exec docker-init -- dockerd "$@"'
_SECONDS = 60.0


@contextmanager
def docker_for_builds(directory: Path) -> Iterator[Mapping[str, str]]:
    """Run the daemon, with the image `BASE`; the environment of its clients.

    Parameters
    ----------
    directory
        Is deleted afterwards, with all images.
    """
    docker.install()
    directory.mkdir()
    env = docker.ENV | {"DOCKER_HOST": f"unix://{directory / 'socket'}"}
    options = (
        f"--data-root={directory / 'data'}",
        f"--host={env['DOCKER_HOST']}",
        "--pidfile=/run/docker.pid",
        "--storage-driver=overlay2",
        *("--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false"),
        f"--cgroup-parent=/{_CGROUP}",
        *("--add-runtime", f"lower={BUILT / 'kind_node' / 'runc'}", "--default-runtime=lower"),
    )
    with (directory / "log").open("wb") as log:
        daemon = subprocess.Popen(
            [*_UNSHARE, "sh", "-c", _START, "sh", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | {"DOCKER_RAMDISK": "true"},
        )
    try:
        until(lambda: docker.answers(env), _SECONDS, 0.5)
        load_base(directory / "base", env)
        yield env
    finally:
        for child in machine.children(daemon.pid):
            os.kill(child, signal.SIGKILL)  # the first of its namespace: all others end too
        daemon.wait(30)
        machine.remove_cgroups(_CGROUP)
        shutil.rmtree(directory)


def load_base(context: Path, env: Mapping[str, str]) -> None:
    """Make the Dockerfile's base image without a registry, and load it.

    It has the certificates of authorities that this machine trusts besides Debian's: downloads in
    a build are checked against them.
    """
    context.mkdir()
    dockerfile = (ROOT / "functions" / "Dockerfile").read_text()
    (base,) = (line for line in dockerfile.splitlines() if line.startswith("ARG BASE="))
    steps = [base, "FROM ${BASE}"]
    if any(_CERTIFICATES.glob("*.crt")):
        shutil.copytree(_CERTIFICATES, context / "certificates")
        steps.append(f"COPY certificates {_CERTIFICATES}")
    (context / "Dockerfile").write_text("\n".join([*steps, ""]))
    archive = context / "base.tar"
    tool = (ROOT / "tools" / "image", archive, "--builder", "chroot", "--tag", BASE)
    subprocess.run([*tool, "--context", context], check=True)
    load = ["docker", "load", f"--input={archive}"]
    subprocess.run(load, check=True, env=os.environ | dict(env), stdout=subprocess.DEVNULL)
