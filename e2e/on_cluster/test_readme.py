"""Run the commands of docs/cluster.md. The fixture of all tests runs its installation.

`cutouts` has no pod when the simulated alerts come: it scales from zero, and to zero after them.
"""

from concurrent.futures import ThreadPoolExecutor

import pytest

from e2e.commands import until
from e2e.http import get_json
from e2e.on_cluster import readme
from e2e.on_cluster.release import Release

pytestmark = pytest.mark.timeout(1800)

TOOLBOX = "kubectl --namespace stampede exec deployment/stampede-toolbox -- "
# The fixtures run these before and after the tests.
FIXTURES = ("make e2e-up", "export KUBECONFIG", "helm install", "helm uninstall")


def test_readme(release: Release) -> None:
    cluster = release.cluster
    until(lambda: not release.pods("cutouts"), 180, 1)
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(readme.run, cluster, f"{TOOLBOX}stampede simulate")
        until(lambda: len(release.pods("cutouts")) >= 2, 120, 0.5)
        assert "1,000 alerts" in sending.result().output
    release.wait_until_stored()
    assert "nothing is missing" in readme.run(cluster, f"{TOOLBOX}stampede audit").output
    assert "Succeeded" in readme.run(cluster, "helm test").output
    listed = readme.run(cluster, "kubectl --namespace stampede get services").output
    for name in ("read", "bulk"):
        assert release.url(name) in listed
        assert get_json(f"{release.url(name)}/v1/ledger")
    until(lambda: not release.pods("cutouts"), 180, 1)
    readme.run(cluster, "helm upgrade")
    until(lambda: not release.not_ready("services.serving.knative.dev"), 240, 1)
    rest = set(readme.COMMANDS) - readme.ran
    assert all(command.startswith(FIXTURES) for command in rest), rest
