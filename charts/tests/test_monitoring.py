"""Alert rules and dashboards query metrics that exist, and every rule has a runbook."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import promql_parser as promql
import pytest
import yaml
from prometheus_client import REGISTRY
from rendering import CHART, ROOT, containers, environment, objects, rendered, sources

from stampede import telemetry
from stampede.handlers.apps import APPS

RULES = sorted((CHART / "files" / "alerts").glob("*.yaml"))
DASHBOARDS = sorted((CHART / "files" / "dashboards").glob("*.json"))
RUNBOOKS = ROOT / "docs" / "runbooks"
HEADINGS = ["Meaning", "Impact", "Diagnosis", "Mitigation"]
EXPORTED = ("stampede_", "process_start_")
# Labels that Prometheus adds to a pod's metrics.
ADDED = {"namespace", "pod", "container", "job", "instance", "component", "source", "le"}


def exported() -> dict[str, set[str]]:
    """Every metric that Stampede exports, with its labels; some are of Prometheus' client."""
    for name in telemetry.__all__:
        import_module(f"stampede.telemetry.{name}")
    found: dict[str, set[str]] = {}
    for collector, names in REGISTRY._collector_to_names.items():
        for name in names:
            if name.startswith(EXPORTED) and not name.endswith("_created"):
                found[name] = set(getattr(collector, "_labelnames", ()))
    return found


def queries(path: Path) -> Iterator[str]:
    """The PromQL queries of a rule or a dashboard."""
    if path.suffix == ".yaml":
        yield yaml.safe_load(path.read_text())["expr"]
        return
    yield from expressions(json.loads(path.read_text()))


def expressions(value: Any) -> Iterator[str]:
    """Every `expr` in a dashboard, and the queries of its variables."""
    if isinstance(value, list):
        for inner in value:
            yield from expressions(inner)
    elif isinstance(value, dict):
        for name, inner in value.items():
            if name in ("expr", "query", "definition") and isinstance(inner, str):
                yield inner
            else:
                yield from expressions(inner)


def selected(query: str) -> list[tuple[str, set[str]]]:
    """The metrics in a query, and the labels it selects or groups by. Raises ValueError."""
    # Replace Grafana's own syntax: intervals, and the values of a label.
    query = re.sub(r"\$__\w+", "5m", query)
    query = re.sub(r"^label_values\((.+), *(\w+)\)$", r"sum by (\2) (\1)", query)
    grouped: list[list[str]] = []  # labels of the enclosing aggregations
    found: list[tuple[str, set[str]]] = []

    def enter(node: promql.Expr) -> None:
        if isinstance(node, promql.AggregateExpr):
            grouped.append(node.modifier.labels if node.modifier else [])
        elif isinstance(node, promql.VectorSelector):
            labels = {each.name for each in node.matchers.matchers}
            assert node.name
            found.append((node.name, labels.union(*grouped)))

    def leave(node: promql.Expr) -> None:
        if isinstance(node, promql.AggregateExpr):
            grouped.pop()

    promql.walk(promql.parse(query), enter, leave)
    return found


@pytest.mark.parametrize("path", [*RULES, *DASHBOARDS], ids=lambda path: path.stem)
def test_metrics_and_labels_exist(path: Path) -> None:
    known, names = exported(), set()
    for query in queries(path):
        for name, labels in selected(query):
            if name.startswith(EXPORTED):
                assert name in known, query
                assert labels <= known[name] | ADDED, query
            names.add(name)
    assert any(name.startswith(EXPORTED) for name in names)


def test_a_wrong_query_is_an_error() -> None:
    with pytest.raises(ValueError, match="parenthesis"):
        selected("sum by (topic) (rate(stampede_source_lag_events[5m])")
    assert selected("sum by (a) (rate(b{c='d'}[$__rate_interval])) / e") == [
        ("b", {"a", "c"}),
        ("e", set()),
    ]


def test_there_are_rules_and_dashboards() -> None:
    assert len(RULES) >= 10
    assert DASHBOARDS


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_a_rule_has_a_runbook(path: Path) -> None:
    rule = yaml.safe_load(path.read_text())
    assert rule["alert"] == path.stem
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"]
    text = (RUNBOOKS / f"{path.stem}.md").read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS


def test_a_runbook_has_a_rule() -> None:
    pages = {path.stem for path in RUNBOOKS.glob("*.md")} - {"README"}
    assert pages == {path.stem for path in RULES}


def test_rules_link_to_their_runbooks() -> None:
    (made,) = objects("full", "PrometheusRule").values()
    (group,) = made["spec"]["groups"]
    alerts = [rule["alert"] for rule in group["rules"]]
    assert list(dict.fromkeys(alerts)) == [path.stem for path in RULES]
    assert len(alerts) == len(RULES) + 1 + 3, "a rule for each of two sources and four functions"
    for rule in group["rules"]:
        url = f"https://example.org/runbooks/{rule['alert']}.md"
        assert rule["annotations"]["runbook_url"] == url
        assert 'namespace="sky"' in rule["expr"]
        assert "NAMESPACE" not in rule["expr"]


def test_each_function_that_keeps_a_pod_has_a_rule_of_its_own() -> None:
    """The others scale to zero when they are idle."""
    (made,) = objects("full", "PrometheusRule").values()
    (group,) = made["spec"]["groups"]
    found = {
        rule["labels"]["function"]
        for rule in group["rules"]
        if rule["alert"] == "StampedeFunctionGone"
    }
    assert found == {"cutouts", "lightcurves", "notifications", "read"}


def test_each_source_has_a_rule_of_its_own() -> None:
    """Else four pods of one source would hide that another has none."""
    (made,) = objects("scaling", "PrometheusRule").values()
    (group,) = made["spec"]["groups"]
    found = {
        rule["labels"]["source"]: int(rule["expr"].rpartition("<")[2])
        for rule in group["rules"]
        if rule["alert"] == "StampedeSourceDown"
    }
    assert found == {"bursts": 2, "lsst": 2, "old": 3, "ztf": 2}
    labels = {each["metadata"]["labels"]["stampede/source"] for each in sources("scaling").values()}
    assert labels == found.keys()
    (endpoint,) = objects("scaling", "PodMonitor")["night-sources"]["spec"]["podMetricsEndpoints"]
    assert {
        "sourceLabels": ["__meta_kubernetes_pod_label_stampede_source"],
        "targetLabel": "source",
    } in endpoint["relabelings"]


def test_without_a_second_site_its_rule_is_missing() -> None:
    made = rendered("full", "--set", "replica.url=", "--set", "replica.existingSecret=")
    (rules,) = (each for each in made if each["kind"] == "PrometheusRule")
    alerts = {rule["alert"] for group in rules["spec"]["groups"] for rule in group["rules"]}
    assert alerts == {path.stem for path in RULES} - {"StampedeSecondSiteBehind"}


def test_without_scrub_its_rule_is_missing() -> None:
    made = rendered("full", "--set", "functions.scrub.enabled=false")
    (rules,) = (each for each in made if each["kind"] == "PrometheusRule")
    alerts = {rule["alert"] for group in rules["spec"]["groups"] for rule in group["rules"]}
    assert alerts == {path.stem for path in RULES} - {"StampedeNotScrubbed"}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_a_dashboard_is_valid(path: Path) -> None:
    board = json.loads(path.read_text())
    assert board["title"]
    assert board["uid"]
    assert board["panels"]
    numbers = [panel["id"] for panel in board["panels"] if "id" in panel]
    assert len(numbers) == len(set(numbers))
    made = objects("full", "ConfigMap")
    (text,) = (m["data"][path.name] for m in made.values() if path.name in m.get("data", {}))
    assert json.loads(text) == board


def test_monitors_use_existing_ports() -> None:
    """Knative names a function's port itself; the chart names a source's."""
    ports = {
        endpoint["port"]
        for monitor in objects("full", "PodMonitor").values()
        for endpoint in monitor["spec"]["podMetricsEndpoints"]
    }
    assert ports == {"user-port", "http"}
    for service in objects("full", "Service").values():
        if service["apiVersion"].startswith("serving.knative.dev"):
            (container,) = service["spec"]["template"]["spec"]["containers"]
            assert environment(container)["STAMPEDE_METRICS_PORT"] == "9400"


def test_a_function_in_the_pods_of_a_source_has_its_metrics_where_a_source_has_them() -> None:
    (endpoint,) = objects("scaling", "PodMonitor")["night-sources"]["spec"]["podMetricsEndpoints"]
    for each in sources("scaling").values():
        (container,) = containers(each["spec"]["template"])
        (port,) = container["ports"]
        assert port["name"] == endpoint["port"]
        variables = environment(container)
        assert int(variables.get("STAMPEDE_PORT", "8080")) == port["containerPort"]
        assert "STAMPEDE_METRICS_PORT" not in variables


def test_the_metrics_of_functions_have_a_port_of_their_own() -> None:
    """The monitor goes there, and the policy lets Prometheus, and only it, in there."""
    monitors = objects("full", "PodMonitor")
    (endpoint,) = monitors["alerts-functions"]["spec"]["podMetricsEndpoints"]
    rule = endpoint["relabelings"][0]
    assert (rule["sourceLabels"], rule["targetLabel"]) == (["__address__"], "__address__")
    for address, moved in (
        ("10.1.2.3:8080", "10.1.2.3:9400"),
        ("[fd00::1]:8080", "[fd00::1]:9400"),
    ):
        found = re.fullmatch(rule["regex"], address)
        assert found is not None
        assert rule["replacement"].replace("$1", found[1]) == moved
    (endpoint,) = monitors["alerts-sources"]["spec"]["podMetricsEndpoints"]
    assert "__address__" not in json.dumps(endpoint["relabelings"])
    policies = objects("full", "NetworkPolicy")
    for name, port in (("alerts-functions", 9400), ("alerts-others", 8080)):
        assert policies[name]["spec"]["ingress"][-1]["ports"] == [{"port": port, "protocol": "TCP"}]
    for source in sources("full").values():
        (container,) = source["spec"]["template"]["spec"]["containers"]
        assert [port["name"] for port in container["ports"]] == ["http"]


def test_no_module_has_too_many_metrics() -> None:
    modules = list((ROOT / "functions" / "stampede" / "telemetry").glob("*_metrics.py"))
    count = {m.name: len(re.findall(r"^[A-Z_]+ = \w+\(", m.read_text(), re.M)) for m in modules}
    assert sum(count.values()) > 50
    assert max(count.values()) <= 15


@pytest.mark.parametrize("function", [*APPS, "source"])
def test_each_function_has_the_metric_whose_absence_says_that_it_is_gone(
    function: str, tmp_path: Path
) -> None:
    """A process has the metrics of the modules that it imports, so each is a process here."""
    rule = yaml.safe_load((CHART / "files/alerts/StampedeFunctionGone.yaml").read_text())
    (name,) = re.findall(r"absent\((\w+)\{", rule["expr"])
    code = (
        "from prometheus_client import REGISTRY\n"
        "from stampede.handlers import function_process\n"
        f"function_process._made({function!r})\n"
        f"assert REGISTRY.get_sample_value({name!r}) > 1e9"
    )
    places = {
        f"STAMPEDE_{variable}": f"file://{tmp_path}/{variable}"
        for variable in ("STORE", "REPLICA", "CATALOGUE")
    }
    env = {"PATH": os.environ["PATH"], "STAMPEDE_SINK": "http://127.0.0.1:1", **places}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT / "functions",
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
