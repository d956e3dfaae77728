"""The doctor stops an installation that could not work, and Helm prints its words."""

import pytest

from e2e.on_cluster.release import CHART, Release

pytestmark = pytest.mark.timeout(600)

NAME = "faulty"
FAULTS = {
    "store.url=http://ceph.site.svc:9/stampede": "ERROR store: the store does not let us list",
    "store.existingSecret=nowhere": "ERROR store: STAMPEDE_ACCESS_KEY is not set",
}


@pytest.mark.parametrize("value", FAULTS)
def test_a_faulty_installation_is_stopped(release: Release, value: str) -> None:
    helm, namespace = release.cluster.helm, ("--namespace", release.name)
    of_it = ("--selector", f"app.kubernetes.io/instance={NAME}")
    values = ("--values", release.values, "--set", value)
    try:
        done = helm("install", NAME, CHART, *namespace, *values, seconds=300, check=False)
        assert done.status
        assert FAULTS[value] in done.output
        assert "helm uninstall --no-hooks" in done.output
        assert not release.get("services.serving.knative.dev", *of_it)
    finally:
        helm("uninstall", NAME, *namespace, "--no-hooks")
        release.kubectl("delete", "jobs", *of_it)
