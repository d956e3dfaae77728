"""The CPU that pods request by default is what was measured."""

import json
from typing import Any

import pytest
import yaml
from rendering import CHART, ROOT

MEASURED = json.loads((ROOT / "docs" / "how-to" / "plan-capacity.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
RATE = 300  # alerts a second: a night of Rubin
AT_REST = 1.6  # cores


def used(part: str) -> float:
    """Cores that a part of Stampede takes at `RATE`, of LSST alerts with the longest histories."""
    per_million = next(iter(MEASURED["figures"].values()))
    parts = (f"CPU of {part} until drawn", f"CPU of {part} workers until drawn")
    return sum(per_million.get(each, 0.0) for each in parts) * RATE / 1e6


def requested(pod: dict[str, Any], pods: int) -> float:
    """Cores that pods request together."""
    text = pod["resources"]["requests"]["cpu"]
    return pods * (float(text[:-1]) / 1000 if str(text).endswith("m") else float(text))


def kept() -> dict[str, tuple[dict[str, Any], int]]:
    """What always runs, with its number of pods."""
    functions = {
        name: (each, each["scaling"]["min-scale"])
        for name, each in VALUES["functions"].items()
        if each["enabled"] and each["scaling"]["min-scale"]
    }
    one = {"sources": (VALUES["source"], VALUES["source"]["replicas"])}
    return functions | one | {"toolbox": (VALUES["toolbox"], 1)}


@pytest.mark.parametrize("part", ["sources", "cutouts", "lightcurves", "notifications"])
def test_pods_that_are_kept_request_what_a_night_takes(part: str) -> None:
    """Less, and the scheduler starts pods that the cores cannot carry; more, and it starts none."""
    assert 1 <= requested(*kept()[part]) / used(part) <= 4


def test_all_of_it_fits_beside_others_on_two_small_nodes() -> None:
    assert sum(requested(*each) for each in kept().values()) <= AT_REST
