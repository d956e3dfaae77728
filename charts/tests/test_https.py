"""docs/how-to/https.md: its values, its files and the manifests of the ingress agree."""

import copy
import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendering import ROOT, Object, containers, environment, helm, pods, template
from schemas import Schemas

PAGE = (ROOT / "docs" / "how-to" / "https.md").read_text()
MAPPED, ANNOTATED = (
    yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
)
FILES = sorted((ROOT / "docs" / "how-to" / "https").glob("*.yaml"))
HOSTS = {"read": "alerts.example.org", "bulk": "bulk.example.org"}
GIVEN = {
    "image": {"repository": "registry.example.org/stampede"},
    "store": {"url": "http://ceph:8000/stampede", "existingSecret": "ceph-keys"},
    "eventKey": {"value": "a-key-of-the-tests"},
}


def read(path: Path) -> list[Object]:
    return list(yaml.safe_load_all(path.read_text()))


def examples(kind: str) -> list[Object]:
    return [each for path in FILES for each in read(path) if each["kind"] == kind]


def made(values: dict[str, Any], directory: Path) -> list[Object]:
    """What the chart makes of values in the release of the page."""
    file = directory / "values.yaml"
    file.write_text(yaml.safe_dump({**GIVEN, **values}))
    done = template(
        "--values", file, "--namespace", "stampede", "--set", "fullnameOverride=stampede"
    )
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


def function(objects: list[Object], name: str) -> Object:
    (found,) = (
        each
        for each in objects
        if each["kind"] == "Service" and each["metadata"]["name"] == f"stampede-{name}"
    )
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_each_example_is_valid_and_a_wrong_field_is_not(schemas: Schemas, path: Path) -> None:
    for each in read(path):
        assert schemas.problems(each) == []
        wrong = copy.deepcopy(each)
        wrong["spec"]["wrong"] = "field"
        (problem,) = schemas.problems(wrong)
        assert "'wrong' was unexpected" in problem


def test_the_mappings_have_a_certificate_and_a_claim(tmp_path: Path) -> None:
    objects = made(MAPPED, tmp_path)
    mappings = [each for each in objects if each["kind"] == "DomainMapping"]
    leads = {each["metadata"]["name"]: each["spec"]["ref"]["name"] for each in mappings}
    assert leads == {host: f"stampede-{name}" for name, host in HOSTS.items()}
    (certificate,) = (
        each for each in examples("Certificate") if each["metadata"]["namespace"] == "stampede"
    )
    assert set(certificate["spec"]["dnsNames"]) == set(leads)
    secrets = {each["spec"]["tls"]["secretName"] for each in mappings}
    assert secrets == {certificate["spec"]["secretName"]}
    claims = {
        each["metadata"]["name"]: each["spec"]["namespace"]
        for each in examples("ClusterDomainClaim")
    }
    assert claims == dict.fromkeys(leads, "stampede")


def test_the_template_gives_an_annotated_function_its_host(tmp_path: Path) -> None:
    """Helm runs it: Knative has the same templates of Go."""
    (line,) = (each for each in PAGE.splitlines() if "domain-template" in each and "$ " in each)
    hosts = json.loads(shlex.split(line)[-1])["data"]["domain-template"]
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("{apiVersion: v2, name: hosts, version: 0.0.0}")
    (chart / "templates" / "hosts.yaml").write_text(
        "hosts:\n{{range .Values.functions}}- {{tpl $.Values.hosts (merge . "
        '(dict "Template" $.Template "Namespace" "stampede" "Domain" "example.net"))}}\n{{end}}'
    )
    objects = made(ANNOTATED, tmp_path)
    functions = [
        {"Name": f"stampede-{name}", "Annotations": found["metadata"].get("annotations", {})}
        for name in ("read", "bulk", "cutouts")
        for found in [function(objects, name)]
    ]
    (chart / "values.yaml").write_text(yaml.safe_dump({"hosts": hosts, "functions": functions}))
    done = helm("template", "hosts", chart)
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load(done.stdout)["hosts"] == [
        *HOSTS.values(),
        "stampede-cutouts.stampede.example.net",
    ]


@pytest.mark.parametrize("values", [MAPPED, ANNOTATED], ids=["mapped", "annotated"])
def test_read_knows_the_url_of_bulk_and_believes_its_sidecar(
    values: dict[str, Any], tmp_path: Path
) -> None:
    (pod,) = pods(function(made(values, tmp_path), "read"))
    variables = environment(containers(pod)[0])
    assert variables["STAMPEDE_BULK_URL"] == f"https://{HOSTS['bulk']}"
    assert variables["STAMPEDE_TRUSTED_PROXIES"] == "127.0.0.1"


def test_what_is_in_front_ends_tls_and_leads_to_knative_s_ingress() -> None:
    services = {
        (each["metadata"]["namespace"], each["metadata"]["name"], port["port"])
        for each in read(ROOT / "manifests" / "knative" / "traefik.yaml")
        if each["kind"] == "Service"
        for port in each["spec"]["ports"]
    }
    (ingress,), (gateway,), (route,) = map(examples, ("Ingress", "Gateway", "HTTPRoute"))
    namespace = ingress["metadata"]["namespace"]
    assert {each["metadata"]["namespace"] for each in (ingress, gateway, route)} == {namespace}
    certificates = {
        (each["metadata"]["namespace"], each["spec"]["secretName"], *each["spec"]["dnsNames"])
        for each in examples("Certificate")
    }
    (tls,) = ingress["spec"]["tls"]
    (listener,) = gateway["spec"]["listeners"]
    (reference,) = listener["tls"]["certificateRefs"]
    assert [*HOSTS.values()] == tls["hosts"] == route["spec"]["hostnames"]
    for secret in (tls["secretName"], reference["name"]):
        assert (namespace, secret, *HOSTS.values()) in certificates
    assert [rule["host"] for rule in ingress["spec"]["rules"]] == [*HOSTS.values()]
    for rule in ingress["spec"]["rules"]:
        (path,) = rule["http"]["paths"]
        service = path["backend"]["service"]
        assert (namespace, service["name"], service["port"]["number"]) in services
    (rule,) = route["spec"]["rules"]
    (backend,) = rule.pop("backendRefs")
    assert rule == {}, "a filter could change the Host"
    assert (namespace, backend["name"], backend["port"]) in services
    (parent,) = route["spec"]["parentRefs"]
    assert parent == {"name": gateway["metadata"]["name"], "sectionName": listener["name"]}
