"""Knative and KEDA do the same work on one cluster, one after the other: `make e2e-duel`."""
