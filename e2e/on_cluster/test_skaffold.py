"""`skaffold run --profile kind` and `skaffold verify`, but for the builds.

skaffold itself is not run: its commands are, as skaffold.yaml has them, with the images that are on
the cluster. It applies manifests, upgrades the release, and runs each container under `verify` as a
Job.
"""

import json
from collections.abc import Iterator

import pytest

from e2e.commands import until
from e2e.on_cluster.kubernetes import retry_if_overloaded
from e2e.on_cluster.release import INSTALL_SECONDS, Release
from e2e.places import ROOT
from e2e.skaffold import Config, configs, profile

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

VERIFY_SECONDS = 120


def upgrade(release: Release, made: str, config: Config) -> None:
    """Upgrade the release as skaffold does, once the image is built."""
    (wanted,) = config["deploy"]["helm"]["releases"]
    repository, _, tag = made.rpartition(":")
    built = {"IMAGE_REPO_dev_local_stampede": repository, "IMAGE_TAG_dev_local_stampede": tag}
    sets = wanted["setValues"] | {
        key: built[template.strip("{}.")] for key, template in wanted["setValueTemplates"].items()
    }
    line = (
        *("upgrade", wanted["name"], ROOT / wanted["chartPath"], "--namespace"),
        wanted["namespace"],
        *(word for file in wanted["valuesFiles"] for word in ("--values", ROOT / file)),
        *(word for key, value in sets.items() for word in ("--set", f"{key}={value}")),
        *(["--wait"] if wanted["wait"] else []),
    )
    retry_if_overloaded(lambda: release.cluster.helm(*line, seconds=INSTALL_SECONDS))
    release.wait_until_ready()


@pytest.fixture
def deployed(release: Release) -> Iterator[str]:
    """The image of the release, which was upgraded as skaffold does it."""
    made = release.image()
    site, stampede = (profile(configs()[name], "kind") for name in ("site", "stampede"))
    for file in site["manifests"]["rawYaml"]:
        release.cluster.kubectl("apply", "--filename", ROOT / file)
    upgrade(release, made, stampede)
    yield made
    release.install()


def test_deploy_and_verify(release: Release, deployed: str) -> None:
    """Its own keys, not the Secrets of the other tests; the release works, and `verify` says so."""
    (container,) = (each["container"] for each in configs()["stampede"]["verify"])
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": container["name"], "namespace": "default"},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [container | {"image": deployed}],
                }
            },
        },
    }
    release.stampede("simulate", "--alerts", 100, "--seed", 93, seconds=300)
    release.wait_until_stored()
    kubectl = release.cluster.kubectl
    kubectl("apply", "--filename", "-", stdin=json.dumps(job))
    try:

        def ended() -> dict[str, int]:
            (found,) = release.cluster.get("jobs", "default", container["name"])
            return {k: v for k, v in found["status"].items() if k in ("succeeded", "failed")}

        until(ended, VERIFY_SECONDS, 1)
        log = kubectl("--namespace", "default", "logs", f"job/{container['name']}", check=False)
        assert ended() == {"succeeded": 1}, log.report()
    finally:
        kubectl("--namespace", "default", "delete", "job", container["name"])
