"""A Kubernetes cluster with Knative for the end-to-end tests. No image is pulled for it.

The environment decides which cluster it is:

- the cluster of the kubeconfig that ``STAMPEDE_E2E_KUBECONFIG`` names, if it is set;
- kind, if a Docker daemon answers that can pull kind's node image;
- otherwise kind with a Docker daemon of our own, and a node image made of pinned Go modules and
  Debian packages.

``python -m e2e.cluster up`` starts the cluster and prints how to reach it.
"""

from e2e.cluster.choice import Cluster, choose
from e2e.cluster.steps import Failed

__all__ = ["Cluster", "Failed", "choose"]
