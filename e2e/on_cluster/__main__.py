"""``make e2e-up``: a cluster, our images, a small site of two Cephs and a Kafka, and its keys.

``python -m e2e.on_cluster build`` makes all that takes long, and starts nothing.
"""

import subprocess
import sys
from pathlib import Path

from e2e.cluster import Failed, choose
from e2e.cluster.build import tool
from e2e.cluster.choice import Cluster
from e2e.cluster.places import IMAGES, ROOT
from e2e.cluster.steps import step

NAMES = ("stampede", "stampede-ceph", "stampede-kafka")
SITE = ROOT / "manifests" / "site"
NAMESPACES = ("stampede", "second")  # where the chart is going to be installed
KEYS = {"ceph": ("stampede", "stampede-local"), "second-ceph": ("second-site", "second-site-local")}


def main() -> int:
    """The exit status."""
    try:
        cluster = choose()
        tool("helm")
        cluster.build()
        images = [image(name) for name in NAMES]
        if sys.argv[1:] == ["build"]:
            return 0
        cluster.up()
        cluster.load(*images)
        site(cluster)
    except Failed as failed:
        print(failed, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; what was made is kept", file=sys.stderr)
        return 130
    print(f"export KUBECONFIG={cluster.kubeconfig}")
    return 0


def image(name: str) -> Path:
    """An archive of one of our images, as it is now."""
    archive = IMAGES / f"{name}.tar"
    with step(f"the image of {name}"):
        run = subprocess.run([ROOT / "tools" / "image", archive, "--image", name])
    if run.returncode:
        raise Failed(f"tools/image cannot make {name}")
    return archive


def site(cluster: Cluster) -> None:
    """Two Cephs and a Kafka, and the Secrets by which releases reach them."""
    with step("a site: two Cephs and a Kafka"):
        for what in (SITE / "namespace.yaml", SITE):
            kubectl(cluster, "apply", "--server-side", "--force-conflicts", "-f", what)
        for namespace in NAMESPACES:
            made = kubectl(cluster, "create", "namespace", namespace, *DRY)
            kubectl(cluster, *APPLY, stdin=made)
            for name, (access, secret) in KEYS.items():
                made = kubectl(
                    *(cluster, "create", "secret", "generic", name, "--namespace", namespace),
                    *(f"--from-literal=access-key={access}", f"--from-literal=secret-key={secret}"),
                    *DRY,
                )
                kubectl(cluster, *APPLY, stdin=made)
        ready = ("wait", "--for=condition=Ready", "pods", "--all", "--timeout=400s")
        kubectl(cluster, "--namespace", "site", *ready)


DRY = ("--dry-run=client", "--output=yaml")
APPLY = ("apply", "--server-side", "--force-conflicts", "-f", "-")


def kubectl(cluster: Cluster, *line: object, stdin: str = "") -> str:
    """What it printed. Raises `Failed`."""
    done = subprocess.run(
        [cluster.kubectl, "--kubeconfig", cluster.kubeconfig, *map(str, line)],
        input=stdin,
        text=True,
        capture_output=True,
    )
    if done.returncode:
        raise Failed(f"kubectl {' '.join(map(str, line))[:100]}: {done.stderr.strip()}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
