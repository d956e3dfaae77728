"""Paths on disk, and addresses on the network."""

import os
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "stampede"
# All files of the cluster. To delete them, run `down` first.
CLUSTER = Path(os.environ.get("STAMPEDE_CLUSTER") or CACHE / "cluster").absolute()
PROGRAMS = CLUSTER / "bin"
IMAGES = CLUSTER / "images"
MANIFESTS = CLUSTER / "manifests"
LOGS = CLUSTER / "log"

RUN = CLUSTER / "run"  # state of the node of our own
CONFIG = RUN / "config"
PKI = RUN / "pki"
CONTAINERD = RUN / "containerd"  # images; `down --wipe` keeps them
CONTAINERD_SOCKET = RUN / "containerd.sock"
DATA = RUN / "data"  # pods see it as `HOST_PATHS`
HOST_PATHS = Path("/srv")  # exists on every Debian, so `down` need not remove it
# Directories that a reboot clears, or that must leave no trace on this machine.
TEMPORARY = tuple(map(Path, ("/run", "/var/log", "/var/lib/cni", "/var/lib/kubelet")))
KUBECONFIG = RUN / "kubeconfig"
PID = RUN / "pid"

# The link between this machine and the node, and the address ranges behind it.
LINK = "stampede0"
HOST_IP, NODE_IP = "10.99.0.1", "10.99.0.2"
PODS = "10.244.0.0/24"
SERVICES = "10.96.0.0/16"
API_SERVICE = "10.96.0.1"
NODE = "stampede"

DOMAIN = "example.test"
INGRESS_PORT = 30080
REGISTRY = "dev.local"  # not a real registry: Knative does not resolve its tags
