"""skaffold.yaml as skaffold reads it: its configs, and a config with one of its profiles."""

import copy
from typing import Any

import yaml

from e2e.places import ROOT

Config = dict[str, Any]
FILE = ROOT / "skaffold.yaml"


def configs() -> dict[str, Config]:
    """The configs by name."""
    return {each["metadata"]["name"]: each for each in yaml.safe_load_all(FILE.read_text())}


def profile(config: Config, name: str) -> Config:
    """A config with one of its profiles applied, as skaffold does it."""
    made = copy.deepcopy(config)
    chosen = next(each for each in made.pop("profiles") if each["name"] == name)
    for patch in chosen.pop("patches", ()):
        place: Any = made
        *parents, last = patch["path"].strip("/").split("/")
        for step in parents:
            # Raises if the path does not exist.
            place = place[int(step) if step.isdigit() else step]
        assert patch["op"] == "add"
        assert last not in place
        place[last] = patch["value"]
    del chosen["name"]
    return made | chosen


def artifacts(*pipelines: Config) -> dict[str, Config]:
    """What the configs build, by the name of the image."""
    return {each["image"]: each for one in pipelines for each in one["build"]["artifacts"]}


def build_command(artifact: Config, tag: str) -> list[str]:
    """How skaffold builds an artifact with BuildKit and keeps the image in the daemon.

    As in `dockerCLIBuild` of skaffold's `pkg/skaffold/build/docker/docker.go`, but for `--load`,
    which is what Docker does without buildx. The required images have the same tag.
    """
    docker = artifact["docker"]
    line = ["docker", "build", artifact.get("context", "."), "--file", docker["dockerfile"]]
    line += ["-t", f"{artifact['image']}:{tag}"]
    for needed in artifact.get("requires", ()):
        line += ["--build-arg", f"{needed['alias']}={needed['image']}:{tag}"]
    if target := docker.get("target"):
        line += ["--target", target]
    return line
