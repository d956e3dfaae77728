"""An installation of an earlier chart can be upgraded with its stored values.

`earlier/` has the chart of commit d3ce94e and values that it accepted. Helm stores the values that
a user gave; `helm upgrade --reset-then-reuse-values` merges them with the new chart's defaults.
"""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendering import CHART, LOADER, ROOT, Object, containers, environment, pods, template

EARLIER = Path(__file__).with_name("earlier")
(PACKAGE,) = EARLIER.glob("*.tgz")
VALUES = sorted((EARLIER / "values").glob("*.yaml"))
# An upgrade cannot change these fields; a change needs the object to be deleted first.
IMMUTABLE = {"Deployment": ("spec", "selector"), "Trigger": ("spec", "broker")}
# What must not change: consumer groups, since another one would begin with the first alert.
LASTING = ("STAMPEDE_GROUP", "STAMPEDE_STORE", "STAMPEDE_TOPICS")
Named = dict[tuple[str, str], Object]


def rendered_by(chart: Path, values: Path) -> Named:
    """The objects of a chart by kind and name, rendered as in an upgrade."""
    done = template("--is-upgrade", "--values", values, chart=chart)
    assert done.returncode == 0, done.stderr
    objects = (each for each in yaml.load_all(done.stdout, LOADER) if each)
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}


def field(each: Object, path: tuple[str, ...]) -> Any:
    for name in path:
        each = each[name]
    return each


def lasting(each: Object) -> list[dict[str, str | None]]:
    """The settings of an object's containers that an upgrade must not change."""
    return [
        {name: value for name, value in environment(container).items() if name in LASTING}
        for pod in pods(each)
        for container in containers(pod)
    ]


def successors(objects: Named) -> Named:
    """The objects by the kind and name that they have now.

    There was a ContainerSource for each pod and function; a source is one Deployment now.
    """
    return {
        ("Deployment", re.sub(r"-(cutouts|lightcurves)(-\d+)?$", "", name))
        if kind == "ContainerSource"
        else (kind, name): each
        for (kind, name), each in objects.items()
    }


def without_function(lasting: list[dict[str, str | None]]) -> list[dict[str, str | None]]:
    """What a source of both functions must have of one that was for a function.

    It begins where the groups of the functions have stopped.
    """
    return [
        each
        | {"STAMPEDE_GROUP": re.sub(r"-(cutouts|lightcurves)$", "", str(each["STAMPEDE_GROUP"]))}
        for each in lasting
    ]


@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_stored_values_give_the_same_objects(values: Path) -> None:
    before, after = successors(rendered_by(PACKAGE, values)), rendered_by(CHART, values)
    assert before.keys() <= after.keys()
    for which, each in before.items():
        later = after[which]
        if each["kind"] == "ContainerSource":
            assert lasting(later) == without_function(lasting(each)), which
            continue
        assert later["apiVersion"] == each["apiVersion"], which
        if path := IMMUTABLE.get(which[0]):
            assert field(later, path) == field(each, path), which
        assert lasting(later) == lasting(each), which


def test_no_page_advises_values_that_lack_new_defaults() -> None:
    """With `--reuse-values` Helm ignores the new chart's defaults, and templates miss them."""
    names = subprocess.check_output(["git", "ls-files", "*.md", "*.txt", "*.yaml"], cwd=ROOT)
    advising = [
        name
        for name in names.decode().split()
        if name != "CHANGELOG.md"
        and re.search(r"(?<![-\w])--reuse-values", (ROOT / name).read_text())
    ]
    assert advising == []
