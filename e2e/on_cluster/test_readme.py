"""What README says of a cluster, run as it stands there; all tests begin with its install."""

import pytest

from e2e.on_cluster import readme
from e2e.on_cluster.release import Release
from e2e.user import get_json, until

pytestmark = pytest.mark.timeout(1800)

TOOLBOX = "kubectl --namespace stampede exec deployment/stampede-toolbox -- "
# Run by the fixtures, before and after.
FIXTURES = ("make e2e-up", "export KUBECONFIG", "helm install", "helm uninstall")


def test_readme(release: Release) -> None:
    cluster = release.cluster
    assert "1,000 alerts" in readme.run(cluster, f"{TOOLBOX}stampede simulate").said
    release.wait_until_stored()
    assert "nothing is missing" in readme.run(cluster, f"{TOOLBOX}stampede audit").said
    assert "Succeeded" in readme.run(cluster, "helm test").said
    listed = readme.run(cluster, "kubectl --namespace stampede get services").said
    for name in ("read", "bulk"):
        assert release.url(name) in listed
        assert get_json(f"{release.url(name)}/v1/ledger")
    readme.run(cluster, "helm upgrade")
    until(lambda: not release.unready("services.serving.knative.dev"), 240, 1)
    rest = set(readme.COMMANDS) - readme.ran
    assert all(command.startswith(FIXTURES) for command in rest), rest
