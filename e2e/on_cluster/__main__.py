"""``make e2e-up``: start a cluster with our images, two small Cephs, a Kafka, and their Secrets.

``python -m e2e.on_cluster build`` builds all that the cluster needs, and starts nothing. With
``CEPH=18.2`` in the environment, the Cephs are of that version.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import Failed, choose
from e2e.cluster.built.binaries import tool
from e2e.cluster.choice import Cluster
from e2e.cluster.kubectl import APPLY, Kubectl
from e2e.cluster.places import IMAGES, ON_CONTROL_PLANE, ROOT
from e2e.cluster.steps import exclusive_use, step
from stampede import __version__

NAMES = ("stampede", "stampede-ceph", "stampede-kafka")
OWN_CEPH, OTHER_CEPH = "16.2", "18.2"  # the first is that of the images' Debian
SITE = ROOT / "manifests" / "site"
NAMESPACES = ("stampede", "second")  # of the releases that the tests install
KEYS = {"ceph": ("stampede", "stampede-local"), "second-ceph": ("second-site", "second-site-local")}
DRY_RUN = ("--dry-run=client", "--output=yaml")


def main() -> int:
    """Run the command; its exit status."""
    try:
        cluster = choose()
        with exclusive_use():
            if sys.argv[1:] == ["build"]:
                build(cluster)
                return 0
            up(cluster)
    except Failed as failed:
        print(failed, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; finished builds are kept", file=sys.stderr)
        return 130
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    return 0


def build(cluster: Cluster) -> list[Path]:
    """Build all programs and images; the archives of our images."""
    tool("helm")
    cluster.build()
    return [image(name) for name in NAMES]


def up(cluster: Cluster) -> None:
    """Build what is missing, and start the cluster with the site."""
    images = build(cluster)
    cluster.up(*images)
    kubectl = Kubectl(cluster.kubectl, cluster.kubeconfig)
    site(kubectl)
    require_ceph(kubectl, ceph_version())


def ceph_version() -> str:
    """The version of Ceph that the environment selects. Raises `Failed` if there is none such."""
    version = os.environ.get("CEPH") or OWN_CEPH
    if version not in (OWN_CEPH, OTHER_CEPH):
        raise Failed(f"CEPH={version}: it can be {OTHER_CEPH}; without it, Ceph is {OWN_CEPH}")
    return version


@contextmanager
def temporarily_up(cluster: Cluster) -> Iterator[None]:
    """The cluster with the site. It stays up if it was up; otherwise a new one is started."""
    was_up = cluster.running
    if not was_up:
        cluster.down(wipe=True)
    try:
        up(cluster)
        yield
    finally:
        if not was_up:
            cluster.down(wipe=True)


def image(name: str) -> Path:
    """Build one of our images from the current sources; its archive."""
    archive, source, tag = IMAGES / f"{name}.tar", name, ()
    if name == "stampede-ceph" and (version := ceph_version()) != OWN_CEPH:
        # Under the same tag, which the manifests name.
        source, tag = f"{name}-{version}", ("--tag", f"dev.local/{name}:{__version__}")
    with step(f"the image of {source}"):
        run = subprocess.run([ROOT / "tools" / "image", archive, "--image", source, *tag])
    if run.returncode:
        raise Failed(f"tools/image cannot make {source}")
    return archive


def site(kubectl: Kubectl) -> None:
    """Start two Cephs and a Kafka, and create the Secrets that releases need."""
    with step("the site: two Cephs and a Kafka"):
        kubectl(*APPLY, SITE / "namespace.yaml")
        kubectl(*APPLY, "-", stdin=yaml.safe_dump_all(_site_objects()))
        for namespace in NAMESPACES:
            kubectl(*APPLY, "-", stdin=kubectl("create", "namespace", namespace, *DRY_RUN))
            for name, (access, secret) in KEYS.items():
                manifest = kubectl(
                    *("create", "secret", "generic", name, "--namespace", namespace, *DRY_RUN),
                    *(f"--from-literal=access-key={access}", f"--from-literal=secret-key={secret}"),
                )
                kubectl(*APPLY, "-", stdin=manifest)
        ready = ("wait", "--for=condition=Ready", "pods", "--all", "--timeout=400s")
        kubectl("--namespace", "site", *ready)


def _site_objects() -> Iterator[dict[str, Any]]:
    """Those of manifests/site. Their data is on one node, which is not a worker that tests stop."""
    for path in SITE.glob("*.yaml"):
        for each in yaml.safe_load_all(path.read_text()):
            if each["kind"] == "StatefulSet":
                each["spec"]["template"]["spec"] |= ON_CONTROL_PLANE
            yield each


def require_ceph(kubectl: Callable[..., str], version: str) -> None:
    """Raise `Failed` if the site's pods, which may be older than their images, run another Ceph."""
    shell = ("--namespace", "site", "exec", "statefulset/ceph", "--container", "ceph", "--")
    runs = kubectl(*shell, "radosgw", "--version").split()[2]
    if not runs.startswith(f"{version}."):
        raise Failed(f"the cluster runs Ceph {runs}, not {version}: make e2e-down, then try again")


if __name__ == "__main__":
    sys.exit(main())
