"""The chart, as Helm renders it: by the pinned Helm, with values of `ci/` and others."""

import copy
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "stampede"
CASES = sorted(path.stem for path in (CHART / "ci").glob("*.yaml"))
RELEASE, NAMESPACE = "night", "sky"  # neither is what a template might have been written for
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Object = dict[str, Any]


@cache
def program() -> str:
    """Path of Helm, built out of Go modules the first time."""
    line = [sys.executable, "-m", "e2e.cluster", "tool", "helm"]
    told = subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert told.returncode == 0, "Helm could not be built: see above"
    return told.stdout.strip()


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What Helm says, where it knows of no cluster."""
    environment = os.environ | {"KUBECONFIG": os.devnull}
    return subprocess.run([program(), *arguments], capture_output=True, text=True, env=environment)


def template(*arguments: str | Path, chart: Path = CHART) -> subprocess.CompletedProcess[str]:
    """`helm template` of the chart."""
    return helm("template", RELEASE, chart, "--namespace", NAMESPACE, *arguments)


@cache
def _rendered(case: str, *arguments: str) -> list[Object]:
    told = template("--values", CHART / "ci" / f"{case}.yaml", *arguments)
    assert told.returncode == 0, told.stderr
    return [each for each in yaml.load_all(told.stdout, LOADER) if each]


def rendered(case: str, *arguments: str) -> list[Object]:
    """All objects that the chart makes with the values of `ci/CASE.yaml`."""
    return copy.deepcopy(_rendered(case, *arguments))


def objects(case: str, kind: str) -> dict[str, Object]:
    """Those of one kind, by name."""
    return {each["metadata"]["name"]: each for each in rendered(case) if each["kind"] == kind}


def notes(directory: Path, *arguments: str | Path) -> str:
    """What Helm says after an installation.

    `helm template` does not render NOTES.txt, and an installation wants a cluster: so a copy of
    the chart has it as the text of an object.
    """
    shutil.copytree(CHART, directory / "chart")
    (directory / "chart" / "templates" / "NOTES.txt").rename(directory / "chart" / "notes.txt")
    (directory / "chart" / "templates" / "said.yaml").write_text(
        '{kind: Said, text: {{ tpl (.Files.Get "notes.txt") . | toJson }}}'
    )
    told = template(*arguments, "--show-only", "templates/said.yaml", chart=directory / "chart")
    assert told.returncode == 0, told.stderr
    (said,) = yaml.safe_load_all(told.stdout)
    return said["text"]


def pods(each: Object) -> Iterator[Object]:
    """The pods that an object makes: their metadata and spec."""
    spec = each.get("spec") or {}
    if each["kind"] == "Pod":
        yield each
    elif each["kind"] == "CronJob":
        yield spec["jobTemplate"]["spec"]["template"]
    elif "template" in spec and "containers" in (spec["template"].get("spec") or {}):
        yield spec["template"]


def containers(pod: Object) -> list[Object]:
    """All containers of a pod."""
    return [*pod["spec"]["containers"], *pod["spec"].get("initContainers", ())]


def environment(container: Object) -> dict[str, str | None]:
    """Its variables; None for what comes out of a Secret."""
    return {each["name"]: each.get("value") for each in container.get("env", ())}
