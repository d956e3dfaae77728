"""Paths on disk, and names."""

import os
from pathlib import Path

HERE = Path(__file__).parent
BUILT = HERE / "built"
ROOT = HERE.parents[1]

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stampede"
# All files of the cluster. To delete them, run `down` first.
CLUSTER = Path(os.environ.get("STAMPEDE_CLUSTER") or CACHE / "cluster").absolute()
PROGRAMS = CLUSTER / "bin"
IMAGES = CLUSTER / "images"
MANIFESTS = CLUSTER / "manifests"
LOGS = CLUSTER / "log"

DOMAIN = "example.test"
INGRESS_PORT = 30080
# Of pods that are not under test: no worker that a test stops takes them away.
ON_CONTROL_PLANE = {
    "nodeSelector": {"node-role.kubernetes.io/control-plane": ""},
    "tolerations": [{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}],
}
REGISTRY = "dev.local"  # not a real registry: Knative does not resolve its tags
