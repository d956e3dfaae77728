"""Render the chart by the pinned Helm, with the values of `ci/` and others."""

import os
import pickle
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
KUBERNETES = "1.34.4"  # a Helm that was built from its module takes a very old one by default
RELEASE, NAMESPACE = "night", "sky"  # a template with hard-coded names fails with these
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Object = dict[str, Any]


@cache
def program() -> str:
    """Path of Helm, built from Go modules if missing."""
    line = [sys.executable, "-m", "e2e.cluster", "tool", "helm"]
    done = subprocess.run(line, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert done.returncode == 0, "Helm could not be built: see above"
    return done.stdout.strip()


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Helm without access to a cluster."""
    environment = os.environ | {"KUBECONFIG": os.devnull}
    return subprocess.run([program(), *arguments], capture_output=True, text=True, env=environment)


def template(*arguments: str | Path, chart: Path = CHART) -> subprocess.CompletedProcess[str]:
    """`helm template` of the chart."""
    version = () if "--kube-version" in arguments else ("--kube-version", KUBERNETES)
    return helm("template", RELEASE, chart, "--namespace", NAMESPACE, *version, *arguments)


@cache
def rendered_text(case: str, *arguments: str) -> str:
    """What Helm prints with the values of `ci/CASE.yaml`."""
    done = template("--values", CHART / "ci" / f"{case}.yaml", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def _rendered(case: str, *arguments: str) -> bytes:
    made = [each for each in yaml.load_all(rendered_text(case, *arguments), LOADER) if each]
    return pickle.dumps(made)  # to load a pickle is a tenth of the work of a deep copy


def rendered(case: str, *arguments: str) -> list[Object]:
    """All objects that the chart renders with the values of `ci/CASE.yaml`."""
    return pickle.loads(_rendered(case, *arguments))


def objects(case: str, kind: str) -> dict[str, Object]:
    """The objects of one kind, by name."""
    return {each["metadata"]["name"]: each for each in rendered(case) if each["kind"] == kind}


def sources(case: str) -> dict[str, Object]:
    """The Deployments and StatefulSets of sources, by name."""
    return {
        name: each
        for kind in ("Deployment", "StatefulSet")
        for name, each in objects(case, kind).items()
        if each["metadata"]["labels"]["app.kubernetes.io/component"] == "source"
    }


def notes(directory: Path, *arguments: str | Path) -> str:
    """The text of NOTES.txt.

    `helm template` does not render NOTES.txt, and an installation needs a cluster. So a copy of
    the chart renders it into an object.
    """
    shutil.copytree(CHART, directory / "chart")
    (directory / "chart" / "templates" / "NOTES.txt").rename(directory / "chart" / "notes.txt")
    (directory / "chart" / "templates" / "notes.yaml").write_text(
        '{kind: Notes, text: {{ tpl (.Files.Get "notes.txt") . | toJson }}}'
    )
    done = template(*arguments, "--show-only", "templates/notes.yaml", chart=directory / "chart")
    assert done.returncode == 0, done.stderr
    (rendered_notes,) = yaml.safe_load_all(done.stdout)
    return rendered_notes["text"]


def pods(each: Object) -> Iterator[Object]:
    """Metadata and spec of the pods that an object creates."""
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
    """The container's environment variables; None if the value comes from a Secret."""
    return {each["name"]: each.get("value") for each in container.get("env", ())}
