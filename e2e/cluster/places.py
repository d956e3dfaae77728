"""Where everything is, on disk and on the network."""

import os
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stampede"
# Delete it and nothing of the cluster is left: `down` first.
CLUSTER = Path(os.environ.get("STAMPEDE_CLUSTER") or CACHE / "cluster").absolute()
PROGRAMS = CLUSTER / "bin"
IMAGES = CLUSTER / "images"
MANIFESTS = CLUSTER / "manifests"
LOGS = CLUSTER / "log"

RUN = CLUSTER / "run"  # the node's own
CONFIG = RUN / "config"
PKI = RUN / "pki"
CONTAINERD = RUN / "containerd"  # images, kept when the rest is wiped
CONTAINERD_SOCKET = RUN / "containerd.sock"
DATA = RUN / "data"  # what pods see as `HOST_PATHS`
HOST_PATHS = Path("/srv")  # on every Debian: were it ours to remove, that would undo the mount
# What a machine forgets when it is switched off, or nobody should find there afterwards.
FORGOTTEN = tuple(map(Path, ("/run", "/var/log", "/var/lib/cni", "/var/lib/kubelet")))
KUBECONFIG = RUN / "kubeconfig"
PID = RUN / "pid"

# The link between this machine and the node, and the ranges behind it. Nothing here is routed on.
LINK = "stampede0"
HOST_IP, NODE_IP = "10.99.0.1", "10.99.0.2"
PODS = "10.244.0.0/24"
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
NODE = "stampede"

DOMAIN = "example.test"
INGRESS_PORT = 30080
REGISTRY = "dev.local"  # a name only: Knative takes its tags as they are
