"""`skaffold build --profile kind`: the commands that it runs, with a real Docker daemon."""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from e2e.on_cluster.docker_for_builds import BASE, docker_for_builds
from e2e.places import ROOT
from e2e.skaffold import artifacts, build_command, configs, profile

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="a Docker daemon of our own needs root"),
]
TAG = "built-by-skaffold"
# A command of each image: it shows that the image has what it is for.
WORKS = {
    "dev.local/stampede": ("", "version"),
    "dev.local/stampede-ceph": ("radosgw", "--version"),
    "dev.local/stampede-kafka": ("java", "--version"),
}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """The environment of Docker's client."""
    with docker_for_builds(Path(tmp_path_factory.mktemp("docker"), "daemon")) as env:
        yield os.environ | dict(env) | {"DOCKER_BUILDKIT": "1"}


def run(*words: str, env: Mapping[str, str]) -> str:
    done = subprocess.run(words, env=env, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(words)}: {done.stderr[-2000:]}"
    return done.stdout


def inspect(image: str, env: Mapping[str, str]) -> dict[str, Any]:
    (found,) = json.loads(run("docker", "image", "inspect", image, env=env))
    return found["Config"]


def test_its_builds(daemon: Mapping[str, str]) -> None:
    """skaffold builds an image once those that it requires are there."""
    site, stampede = (profile(configs()[name], "kind") for name in ("site", "stampede"))
    # What this daemon needs besides: it can pull no base image, and its steps have no network.
    here = (f"--build-arg=BASE={BASE}", "--network=host")
    for name, artifact in artifacts(stampede, site).items():
        run(*build_command(artifact, TAG), *here, env=daemon)
        program, *words = WORKS[name]
        entrypoint = (f"--entrypoint={program}",) if program else ()
        line = ("docker", "run", "--rm", "--network=none", *entrypoint, f"{name}:{TAG}", *words)
        assert run(*line, env=daemon).strip()
        assert inspect(f"{name}:{TAG}", daemon)["User"] == "65532:65532"
