"""Values: documented, refused where they are wrong, and named when they are."""

import json
import re
from pathlib import Path

import pytest
import yaml
from rendering import CASES, CHART, helm, notes, objects, template

from stampede.settings import Settings

MINIMAL = "--values", CHART / "ci" / "minimal.yaml"
# Two valid sources, to which a case adds what is wrong.
SOURCE = '"bootstrapServers": ["kafka:9092"], "topics": ["a"]'


def refused(*arguments: str | Path) -> str:
    """What Helm says of values that are wrong."""
    told = template(*arguments)
    assert told.returncode != 0, "it was taken"
    return told.stderr


# What is set, and the place that the message names.
WRONG: list[tuple[str, str]] = [
    ("stores.url=http://a/b", "stores"),
    ("store.url=ceph:8000/stampede", "/store/url"),
    ("store.url=http://ceph:8000", "/store/url"),
    ("store.region=", "/store/region"),
    ("store.secret=a", "/store"),
    ("fullnameOverride=Stampede", "/fullnameOverride"),
    ("image.pullPolicy=Sometimes", "/image/pullPolicy"),
    ("image.pullSecrets=a", "/image/pullSecrets"),
    ("functions.cutout.enabled=true", "/functions"),
    ("functions.read.enabled=yes please", "/functions/read/enabled"),
    ("functions.read.public=1", "/functions/read/public"),
    ("functions.read.scaling.minScale=1", "/functions/read/scaling"),
    ("functions.read.scaling.min-scale=-1", "/functions/read/scaling/min-scale"),
    ("functions.read.containerConcurrency=-1", "/functions/read/containerConcurrency"),
    ("functions.read.timeoutSeconds=0", "/functions/read/timeoutSeconds"),
    ("functions.read.resources.limit.memory=1Gi", "/functions/read/resources"),
    ("functions.read.settings.cache-bytes=1", "/functions/read/settings"),
    ("functions.compact.schedule=hourly", "/functions/compact/schedule"),
    ("functions.read.schedule=* * * * *", "/functions/read"),
    ("functions.cutouts.spool=lots", "/functions/cutouts/spool"),
    ("setup.notificationsUrl=relay:8080", "/setup/notificationsUrl"),
    ("setup.timeoutSeconds=0", "/setup/timeoutSeconds"),
    ("monitoring.podMonitors.interval=often", "/monitoring/podMonitors/interval"),
    ("serviceMonitor.enabled=true", "serviceMonitor"),
    ('sources={"a": {"topics": ["a"]}}', "/sources/a"),
    ('sources={"a": {"bootstrapServers": ["kafka:9092"]}}', "/sources/a"),
    ('sources={"a": {"bootstrapServers": ["kafka"], "topics": ["a"]}}', "bootstrapServers/0"),
    ('sources={"a": {"bootstrapServers": ["kafka:9092"], "topics": []}}', "/sources/a/topics"),
    (f'sources={{"a": {{{SOURCE}, "kind": "pulsar"}}}}', "/sources/a/kind"),
    (f'sources={{"a": {{{SOURCE}, "retry": 0}}}}', "/sources/a/retry"),
    (f'sources={{"a": {{{SOURCE}, "topic": "b"}}}}', "/sources/a"),
    (f'sources={{"A b": {{{SOURCE}}}}}', "'A b'"),
]


@pytest.mark.parametrize(("value", "place"), WRONG)
def test_a_wrong_value_is_named(value: str, place: str) -> None:
    said = refused(*MINIMAL, "--set-json" if "{" in value else "--set", value)
    assert "values don't meet the specifications of the schema" in said
    assert place in said


# What is set, and what the chart says of it.
CONTRADICTIONS: list[tuple[list[str], str]] = [
    (["store.url=", "store.accessKey=", "store.secretKey="], "store.url is not set"),
    (["store.existingSecret=a"], "store.existingSecret and keys given as values"),
    (["store.secretKey="], "store.url without its keys"),
    (["replica.url=http://b:1/c"], "replica.url without its keys"),
    (["replica.existingSecret=a"], "keys of replica, but no replica.url"),
    (
        ["replica.url=http://ceph.site.svc:8000/stampede", "replica.existingSecret=a"],
        "a second site is another store",
    ),
    (["broker.create=false"], "broker.name must say which Broker there is"),
    (["functions.cutouts.timeoutSeconds=60"], "functions.cutouts.timeoutSeconds is 60"),
    (["settings.flush_seconds=300"], "functions.cutouts.timeoutSeconds is 300"),
    (
        [f'sources={{"a": {{{SOURCE}}}}}', "functions.deadletters.enabled=false"],
        "functions.deadletters.enabled is false",
    ),
    (
        [f'sources={{"a": {{{SOURCE}}}, "b": {{{SOURCE}}}}}'],
        "topic a is in sources.a and in sources.b",
    ),
    (
        [f'sources={{"a": {{{SOURCE}, "kind": "kafka", "settings": {{"in_flight": 1}}}}}}'],
        "sources.a: options and settings are for kind: container",
    ),
]


@pytest.mark.parametrize(("values", "said"), CONTRADICTIONS)
def test_a_contradiction_is_explained(values: list[str], said: str) -> None:
    arguments = [a for v in values for a in ("--set-json" if "{" in v else "--set", v)]
    assert said in refused(*MINIMAL, *arguments)


def test_a_release_with_a_long_name_is_told_of_fullnameOverride() -> None:
    told = helm("template", "a" * 31, CHART, *MINIMAL)
    assert told.returncode
    assert "longer than 30 characters: names of pods are made of it" in told.stderr
    short = helm("template", "a" * 31, CHART, *MINIMAL, "--set", "fullnameOverride=short")
    assert short.returncode == 0


def test_every_value_is_documented() -> None:
    """`# --` stands over each, and the chart's README lists it."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    readme = (CHART / "README.md").read_text()
    names = {place: name for name, place in places(yaml.compose("\n".join(lines)), ())}
    undocumented = [name for place, name in names.items() if not described(lines, place)]
    assert undocumented == []
    listed = re.findall(r"^\| `([^`]+)`", readme, re.MULTILINE)
    spelt = [re.sub(r"^functions\.[^.]+\.", "functions.NAME.", name) for name in names.values()]
    assert listed == list(dict.fromkeys(listed)), "a value is listed twice"
    assert set(listed) == set(spelt)


def test_every_setting_can_be_given() -> None:
    """By its name, unless a value of another name is made of it."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    given = schema["$defs"]["settings"]["properties"].keys()
    assert given | MADE == Settings.model_fields.keys()
    assert not given & MADE


# Settings that come of other values, or of where a function runs.
MADE = {
    *("host", "port", "socket", "spool", "namespace", "source_name", "triggers", "subscribers"),
    *("store", "access_key", "secret_key", "region", "ca_file"),
    *("replica", "replica_access_key", "replica_secret_key", "replica_region", "replica_ca_file"),
    *("kafka", "topics", "group", "kafka_options", "retries", "backoff_seconds"),
    *("sink", "sink_token", "dead_letter_sink", "ce_overrides", "notifications", "functions"),
}


def places(node: yaml.Node, path: tuple[str, ...]):
    """Dotted name and line of every value that has a description of its own."""
    assert isinstance(node, yaml.MappingNode)
    for key, value in node.value:
        name = (*path, key.value)
        leaf = not isinstance(value, yaml.MappingNode) or value.flow_style or not value.value
        if leaf or key.value in ("scaling", "settings", "resources", "labels"):
            yield ".".join(name), key.start_mark.line
        else:
            yield from places(value, name)


def described(lines: list[str], place: int) -> bool:
    """Whether the comment above a line begins with `# --`."""
    while place and lines[place - 1].lstrip().startswith("#"):
        place -= 1
        if lines[place].lstrip().startswith("# -- "):
            return True
    return False


@pytest.mark.parametrize("case", CASES)
def test_the_notes_name_what_is_there(tmp_path: Path, case: str) -> None:
    said = notes(tmp_path, "--values", CHART / "ci" / f"{case}.yaml")
    services = objects(case, "Service")
    for name in re.findall(r"http://([a-z0-9-]+)\.sky\.svc", said):
        assert name in services
    for name in re.findall(r"get services.serving.knative.dev (\S+)", said):
        assert name in services
    for name in re.findall(r"deployment/(\S+)", said):
        assert name in objects(case, "Deployment")
    (first,) = re.findall(r"installed as (\S+): (.*)\.$", said, re.MULTILINE)
    assert {f"{first[0]}-{function}" for function in first[1].split(", ")} == set(services)
    assert {"--namespace sky"} == set(re.findall(r"--namespace \S+", said))
