"""``make e2e-up``: a cluster, our images, a small site of two Cephs and a Kafka, and its keys.

``python -m e2e.on_cluster build`` makes all that takes long, and starts nothing.
"""

import subprocess
import sys
from pathlib import Path

from e2e.cluster import Failed, choose
from e2e.cluster.binaries import tool
from e2e.cluster.choice import Cluster
from e2e.cluster.kubectl import Kubectl
from e2e.cluster.places import IMAGES, ROOT
from e2e.cluster.steps import exclusive_use, step

NAMES = ("stampede", "stampede-ceph", "stampede-kafka")
SITE = ROOT / "manifests" / "site"
NAMESPACES = ("stampede", "second")  # where the chart is going to be installed
KEYS = {"ceph": ("stampede", "stampede-local"), "second-ceph": ("second-site", "second-site-local")}
APPLY = ("apply", "--server-side", "--force-conflicts", "-f")
DRY = ("--dry-run=client", "--output=yaml")


def main() -> int:
    """The exit status."""
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
        print("interrupted; what was made is kept", file=sys.stderr)
        return 130
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    return 0


def build(cluster: Cluster) -> list[Path]:
    """All that is to be built; the archives of our images."""
    tool("helm")
    cluster.build()
    return [image(name) for name in NAMES]


def up(cluster: Cluster) -> None:
    """Build what is not built, and bring all of it up."""
    images = build(cluster)
    cluster.up()
    cluster.load(*images)
    site(Kubectl(cluster.kubectl, cluster.kubeconfig))


def image(name: str) -> Path:
    """An archive of one of our images, as it is now."""
    archive = IMAGES / f"{name}.tar"
    with step(f"the image of {name}"):
        run = subprocess.run([ROOT / "tools" / "image", archive, "--image", name])
    if run.returncode:
        raise Failed(f"tools/image cannot make {name}")
    return archive


def site(kubectl: Kubectl) -> None:
    """Two Cephs and a Kafka, and the Secrets by which releases reach them."""
    with step("a site: two Cephs and a Kafka"):
        for what in (SITE / "namespace.yaml", SITE):
            kubectl(*APPLY, what)
        for namespace in NAMESPACES:
            kubectl(*APPLY, "-", stdin=kubectl("create", "namespace", namespace, *DRY))
            for name, (access, secret) in KEYS.items():
                made = kubectl(
                    *("create", "secret", "generic", name, "--namespace", namespace, *DRY),
                    *(f"--from-literal=access-key={access}", f"--from-literal=secret-key={secret}"),
                )
                kubectl(*APPLY, "-", stdin=made)
        ready = ("wait", "--for=condition=Ready", "pods", "--all", "--timeout=400s")
        kubectl("--namespace", "site", *ready)


if __name__ == "__main__":
    sys.exit(main())
