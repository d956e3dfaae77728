"""A Kubernetes cluster with Knative for the end-to-end tests, where no image can be pulled.

Which one, the environment says:

- ``STAMPEDE_E2E_KUBECONFIG`` names a kubeconfig: that cluster, as it is;
- a Docker daemon answers: kind;
- else a node of our own, made of pinned Go modules and Debian packages.

``python -m e2e.cluster up`` brings it up, and says how it is reached.
"""

from e2e.cluster.choice import Cluster, choose
from e2e.cluster.steps import Failed

__all__ = ["Cluster", "Failed", "choose"]
