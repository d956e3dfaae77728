"""The chart's alert rules, for a clock on which two days are twenty seconds."""

import os
import re
import subprocess
from typing import Any

import yaml

from e2e.cluster.built.binaries import KUBERNETES, tool
from e2e.cluster.built.go_modules import pinned_version
from e2e.places import ROOT

CHART = ROOT / "charts" / "stampede"
NAMESPACE = "stampede"
ALERTS = {file.stem for file in (CHART / "files" / "alerts").iterdir()}
# What the chart must know to render all rules. The sources are those of `stampede up`.
VALUES = {
    "store": {"url": "http://store/stampede", "accessKey": "x", "secretKey": "x"},
    "replica": {"url": "http://second/stampede", "accessKey": "x", "secretKey": "x"},
    "sources": {"alerts": {"bootstrapServers": ["kafka:9092"], "topics": ["lsst-alerts"]}},
    "functions": {
        "publish": {"enabled": True, "settings": {"catalogue": "http://store/catalogue"}}
    },
    "monitoring": {"rules": {"enabled": True}},
    "eventKey": {"enabled": False},  # it would ask the cluster
}
# Seconds of the test for each time in a rule. A pass of `reconcile` takes some of them.
SECONDS = {"5m": 6, "10m": 9, "15m": 8, "30m": 8, "90m": 15, "1h": 15, "2h": 20, "26h": 10}
# Bounds that a test cannot reach within a minute, each in one rule.
BOUNDS = {
    "> 5000": "> 10",  # alerts that wait
    "> 60 * 86400": "> 10",  # seconds since a round over the nights
    "[1h])) > 0.85": "[1h])) > 0.01",  # of a quota: a full store would refuse alerts
    "[1h])) > 5": "[1h])) > 1",  # workers that died
}


def rules() -> dict[str, Any]:
    """The spec of the chart's PrometheusRule, with short times. Raises `AssertionError`."""
    version = f"--kube-version={pinned_version(KUBERNETES)}"
    line = ("template", "night", CHART, "--namespace", NAMESPACE, "--values", "-", version)
    done = subprocess.run(
        [tool("helm"), *line, "--show-only", "templates/monitoring.yaml"],
        input=yaml.safe_dump(VALUES),
        capture_output=True,
        text=True,
        env=os.environ | {"KUBECONFIG": os.devnull},
    )
    assert not done.returncode, done.stderr
    (spec,) = [
        each["spec"] for each in yaml.safe_load_all(done.stdout) if each["kind"] == "PrometheusRule"
    ]
    made = spec["groups"][0]["rules"]
    assert {rule["alert"] for rule in made} == ALERTS
    for bound in BOUNDS:
        assert any(bound in rule["expr"] for rule in made), bound
    for rule in made:
        for name in ("expr", "for"):
            if name in rule:
                rule[name] = _shortened(rule[name])
    return spec


def _shortened(text: str) -> str:
    for bound, reachable in BOUNDS.items():
        text = text.replace(bound, reachable)
    return re.sub(r"\b(\d+[mh])\b", lambda found: f"{SECONDS[found[1]]}s", text)
