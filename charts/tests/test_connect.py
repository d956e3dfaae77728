"""The values that connect to a survey's stream, and the same settings on one machine."""

import json
import re
import shlex
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import yaml
from rendering import CHART, ROOT, containers, environment, template

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.events.kafka.login import KafkaLogin

HOW_TO = ROOT / "docs" / "how-to"
SURVEYS = ("rubin", "ztf")
PAGES = {survey: (HOW_TO / f"connect-{survey}.md").read_text() for survey in SURVEYS}
MINIMAL = CHART / "ci" / "minimal.yaml"
SECRET = {"user": "night", "password": "a-password", "type": "SCRAM-SHA-512"}
OPTIONS = {
    "rubin": {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.username": "night",
        "sasl.password": "a-password",
        "sasl.mechanism": "SCRAM-SHA-512",
    },
    "ztf": {},
}
KEYS = "/etc/stampede/kafka-keys"


def file(survey: str) -> Path:
    return HOW_TO / "connect" / f"{survey}.yaml"


def source(survey: str) -> dict[str, Any]:
    """The pod of the source that the chart renders with the values of the page."""
    done = template("--values", MINIMAL, "--values", file(survey))
    assert done.returncode == 0, done.stderr
    (found,) = (
        each
        for each in yaml.safe_load_all(done.stdout)
        if each
        and each["kind"] == "Deployment"
        and each["metadata"]["labels"]["app.kubernetes.io/component"] == "source"
    )
    assert found["metadata"]["name"].endswith(survey)
    return found["spec"]["template"]


def on_a_cluster(survey: str) -> dict[str, str]:
    """The variables of that source."""
    (container,) = containers(source(survey))
    return {k: v for k, v in environment(container).items() if v is not None}


def on_one_machine(survey: str) -> dict[str, str]:
    """The variables and options of `up` that the page has."""
    commands = re.findall(r"^\$ (.+)$", PAGES[survey], re.MULTILINE)
    words = [shlex.split(each) for each in commands]
    made = dict(each[1].split("=", 1) for each in words if each[0] == "export")
    (up,) = (each for each in words if each[:2] == ["stampede", "up"])
    given = dict(zip(up[2::2], up[3::2], strict=True))
    assert given.keys() == {"--kafka", "--topics"}
    return made | {"STAMPEDE_KAFKA": given["--kafka"], "STAMPEDE_TOPICS": given["--topics"]}


def options(variables: dict[str, str], directory: Path) -> dict[str, str]:
    """The options that Kafka's client gets, if the login's files are in a directory."""
    directory.mkdir()
    for name, text in SECRET.items():
        (directory / name).write_text(text)
    settings = Settings(
        kafka_options=json.loads(variables.get("STAMPEDE_KAFKA_OPTIONS", "{}")),
        kafka_keys=str(directory) if variables.get("STAMPEDE_KAFKA_KEYS") else "",
    )
    return KafkaLogin(settings).options


@pytest.mark.parametrize("survey", SURVEYS)
def test_the_page_quotes_the_file(survey: str) -> None:
    (quoted,) = re.findall(r"^ *```yaml\n(.*?)^ *```$", PAGES[survey], re.DOTALL | re.MULTILINE)
    assert dedent(quoted) == file(survey).read_text()
    assert f"[{survey}.yaml](connect/{survey}.yaml)" in PAGES[survey]


@pytest.mark.parametrize("survey", SURVEYS)
def test_the_client_gets_the_options_that_the_page_names(survey: str, tmp_path: Path) -> None:
    found = options(on_a_cluster(survey), tmp_path / "login")
    assert found == OPTIONS[survey]
    assert all(
        f"`{found[name]}`" in PAGES[survey] or f"`{found[name]}:" in PAGES[survey]
        for name in ("security.protocol", "sasl.mechanism")
        if name in found
    )
    assert ("`PLAINTEXT`" in PAGES[survey]) == (not found)


@pytest.mark.parametrize("survey", SURVEYS)
def test_one_machine_has_the_same_settings(survey: str, tmp_path: Path) -> None:
    cluster, machine = on_a_cluster(survey), on_one_machine(survey)
    assert options(machine, tmp_path / "login") == OPTIONS[survey]
    for name in ("KAFKA", "TOPICS", "GROUP"):
        assert machine[f"STAMPEDE_{name}"] == cluster[f"STAMPEDE_{name}"], name
    assert ("STAMPEDE_KAFKA_KEYS" in machine) == (cluster.get("STAMPEDE_KAFKA_KEYS") == KEYS)


def test_rubin_s_login_is_the_secret_of_the_page() -> None:
    (made,) = re.findall(r"create secret generic (.+\\\n.+)", PAGES["rubin"])
    name, *literals = shlex.split(made.replace("\\\n", ""))
    assert {each.removeprefix("--from-literal=").partition("=")[0] for each in literals} == {
        *SECRET
    }
    assert "--from-literal=type=SCRAM-SHA-512" in literals
    pod = source("rubin")["spec"]
    assert name in {v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
    assert KEYS in {m["mountPath"] for m in containers({"spec": pod})[0]["volumeMounts"]}


def test_every_function_that_decodes_asks_rubin_s_registry() -> None:
    done = template("--values", MINIMAL, "--values", file("rubin"))
    assert done.returncode == 0, done.stderr
    asked = {
        each["metadata"]["name"]
        for each in yaml.safe_load_all(done.stdout)
        if each and each["kind"] == "Service" and "STAMPEDE_SCHEMA_REGISTRY" in json.dumps(each)
    }
    assert {"night-cutouts", "night-lightcurves", "night-read"} <= asked
    given = on_one_machine("rubin")["STAMPEDE_SCHEMA_REGISTRY"]
    assert yaml.safe_load(file("rubin").read_text())["settings"]["schema_registry"] == given


def test_the_topics_are_those_of_the_page() -> None:
    rubin, ztf = (Topics.parse(on_a_cluster(survey)["STAMPEDE_TOPICS"]) for survey in SURVEYS)
    newest = {"lsst-alerts-v10.0", "lsst-alerts-v11"}
    assert rubin.current({*newest, "lsst-alerts-v9.0", "alerts-simulated"}) == newest
    assert not rubin.unread({*newest, "alerts-simulated"})
    (family,) = ztf.families
    assert "the last 5 days" in PAGES["ztf"]
    assert family.window == 5
    nights = {f"ztf_20261003_programid{n}" for n in (1, 2, 3)}
    assert {each for each in nights if ztf.holds(each)} == {"ztf_20261003_programid1"}
    assert not ztf.unread(nights)


@pytest.mark.parametrize("topic", ["ztf_.*_programid1", "^ztf_[0-9]{8}_programid1"])
def test_helm_refuses_a_pattern(topic: str) -> None:
    given = json.dumps([topic])
    done = template(
        "--values", MINIMAL, "--values", file("ztf"), "--set-json", f"sources.ztf.topics={given}"
    )
    assert done.returncode
    assert "sources" in done.stderr
