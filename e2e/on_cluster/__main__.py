"""``make e2e-up``: start a cluster with our images, two small Cephs, a Kafka, and their Secrets.

``python -m e2e.on_cluster build`` builds all that the cluster needs, and starts nothing.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from e2e.cluster import Failed, choose
from e2e.cluster.built.binaries import tool
from e2e.cluster.choice import Cluster
from e2e.cluster.kubectl import APPLY, Kubectl
from e2e.cluster.places import IMAGES, ROOT
from e2e.cluster.steps import exclusive_use, step

NAMES = ("stampede", "stampede-ceph", "stampede-kafka")
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
    site(Kubectl(cluster.kubectl, cluster.kubeconfig))


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
    archive = IMAGES / f"{name}.tar"
    with step(f"the image of {name}"):
        run = subprocess.run([ROOT / "tools" / "image", archive, "--image", name])
    if run.returncode:
        raise Failed(f"tools/image cannot make {name}")
    return archive


def site(kubectl: Kubectl) -> None:
    """Start two Cephs and a Kafka, and create the Secrets that releases need."""
    with step("the site: two Cephs and a Kafka"):
        for path in (SITE / "namespace.yaml", SITE):
            kubectl(*APPLY, path)
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


if __name__ == "__main__":
    sys.exit(main())
