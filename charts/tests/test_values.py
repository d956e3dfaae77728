"""All values are documented; wrong and contradictory values are rejected by name."""

import ctypes
import json
import re
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
import yaml
from rendering import CASES, CHART, KUBERNETES, helm, notes, objects, template

from stampede.config.settings import Settings

MINIMAL = "--values", CHART / "ci" / "minimal.yaml"
VERSION = "--kube-version", KUBERNETES
# Fields of a valid source, to which a case adds a wrong one.
SOURCE = '"bootstrapServers": ["kafka:9092"], "topics": ["a"]'
FAMILY = '"bootstrapServers": ["kafka:9092"], "topics": ["a_{YYYYMMDD}"]'


def rejected(*arguments: str | Path) -> str:
    """Helm's error for wrong values."""
    done = template(*arguments)
    assert done.returncode != 0, "the values were accepted"
    return done.stderr


# A wrong value, and the path that the error names.
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
    ("doctor.timeoutSeconds=0", "/doctor/timeoutSeconds"),
    ("monitoring.podMonitors.interval=often", "/monitoring/podMonitors/interval"),
    ("serviceMonitor.enabled=true", "serviceMonitor"),
    ('sources={"a": {"topics": ["a"]}}', "/sources/a"),
    ('sources={"a": {"bootstrapServers": ["kafka:9092"]}}', "/sources/a"),
    ('sources={"a": {"bootstrapServers": ["kafka"], "topics": ["a"]}}', "bootstrapServers/0"),
    ('sources={"a": {"bootstrapServers": ["kafka:9092"], "topics": []}}', "/sources/a/topics"),
    ('sources={"a": {"bootstrapServers": ["kafka:9092"], "topics": ["^a"]}}', "topics/0"),
    ('sources={"a": {"bootstrapServers": ["kafka:9092"], "topics": ["{YYYY}"]}}', "topics/0"),
    (f'sources={{"a": {{{SOURCE}, "kind": "pulsar"}}}}', "/sources/a/kind"),
    (f'sources={{"a": {{{SOURCE}, "retry": 0}}}}', "/sources/a/retry"),
    (f'sources={{"a": {{{SOURCE}, "topic": "b"}}}}', "/sources/a"),
    (f'sources={{"A b": {{{SOURCE}}}}}', "'A b'"),
    ('triggers={"a": {"filters": []}}', "/triggers/a"),
    ('triggers={"replicate": {"subscriber": {"uri": "http://a/"}}}', "'replicate'"),
    ('triggers={"a": {"subscriber": {"uri": "http://a/"}, "broker": "b"}}', "/triggers/a"),
]


@pytest.mark.parametrize(("value", "path"), WRONG)
def test_the_error_names_a_wrong_value(value: str, path: str) -> None:
    error = rejected(*MINIMAL, "--set-json" if "{" in value else "--set", value)
    assert "values don't meet the specifications of the schema" in error
    assert path in error


# Contradictory values, and part of the error.
CONTRADICTIONS: list[tuple[list[str], str]] = [
    (["image.repository="], "image.repository is not set: this chart was made for no registry"),
    (["store.url=", "store.accessKey=", "store.secretKey="], "store.url is not set"),
    (["store.existingSecret=a"], "store.existingSecret is set and keys are given as values"),
    (["store.secretKey="], "store.url is set without keys"),
    (["replica.url=http://b:1/c"], "replica.url is set without keys"),
    (["replica.existingSecret=a"], "keys of replica are set, but replica.url is not"),
    (
        ["replica.url=http://ceph.site.svc:8000/stampede", "replica.existingSecret=a"],
        "the second site must be another store",
    ),
    (["broker.create=false"], "broker.name must name an existing Broker"),
    (["functions.cutouts.timeoutSeconds=60"], "functions.cutouts.timeoutSeconds is 60"),
    (["settings.flush_seconds=300"], "functions.cutouts.timeoutSeconds is 300"),
    (["ledger.source=b"], "there is no sources.b"),
    (["functions.publish.enabled=true"], "functions.publish.settings.catalogue must be the URL"),
    (
        ["settings.reconcile_seconds=301"],
        "functions.reconcile.timeoutSeconds is 600",
    ),
    (["functions.scrub.settings.scrub_seconds=201"], "functions.scrub.timeoutSeconds is 600"),
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
        "sources.a: settings is for kind: container only",
    ),
    (
        [f'sources={{"a": {{{SOURCE}, "kind": "kafka"}}}}'],
        "sources.a: kind: kafka needs an epoch",
    ),
    (
        [f'sources={{"a": {{{FAMILY}, "kind": "kafka", "epoch": "1"}}}}'],
        "sources.a: a_{YYYYMMDD} is a family of topics, and a KafkaSource knows names only",
    ),
    (
        [f'sources={{"a": {{{FAMILY}, "autoscaling": {{"max": 2}}}}}}'],
        "sources.a: a_{YYYYMMDD} is a family of topics, and KEDA knows names only",
    ),
    (
        [f'sources={{"a": {{{FAMILY}}}, "b": {{{FAMILY}}}}}'],
        "topic a_{YYYYMMDD} is in sources.a and in sources.b",
    ),
    (
        ['sources={"a": {"bootstrapServers": ["kafka:9092"], "topics": ["!a_{n}"]}}'],
        "sources.a.topics names only topics that are not to be read",
    ),
    (
        [f'sources={{"a": {{{SOURCE}, "epoch": "1"}}}}'],
        "sources.a: epoch applies to kind: kafka only",
    ),
    (["functions.read.scaling.min-scale=9"], "min-scale is 9, more than max-scale, which is 8"),
    *(
        ([f"{place}.resources.requests.{what}={value}"], f"{place}.resources: requests.{what} is")
        for place in ("functions.read", "source", "source.alerts", "setup", "doctor", "toolbox")
        for what, value in (("memory", "1025Gi"), ("memory", "5e15"))
    ),
    (
        ["functions.read.resources.limits.cpu=1", "functions.read.resources.requests.cpu=1001m"],
        "requests.cpu is 1001m, more than limits.cpu, which is 1",
    ),
    (["functions.read.resources.limits.memory=1GB"], "1GB is no quantity"),
    *(
        (
            ["store.url=http://ceph:80/stampede", f"replica.url={url}", "replica.existingSecret=a"],
            f"replica.url, {url}, is the bucket of store.url",
        )
        for url in ("http://ceph/stampede", "http://ceph:80/stampede/", "http://CEPH:80/stampede")
    ),
    (["store.url=http://a/Stampede"], "it has lower-case letters"),
    (["store.url=http://a/night_alerts"], "it has lower-case letters"),
    (["store.url=http://a/ab"], "it has 3 to 63 characters, not 2"),
    ([f"store.url=http://a/{'b' * 64}"], "it has 3 to 63 characters, not 64"),
    (["store.url=http://a/alerts."], "it begins and ends with a letter or a digit"),
    (["store.url=http://a/-alerts"], "it begins and ends with a letter or a digit"),
    (["store.url=http://a/my..alerts"], "no two dots side by side"),
    (["store.url=http://a/192.168.5.4"], "not written like an IP address"),
    (
        ["replica.url=http://a/B/", "replica.existingSecret=a"],
        "replica.url: S3 refuses B as the name of a bucket",
    ),
    *(
        ([f'sources={{"a": {{{SOURCE}, {fields}}}}}'], error)
        for fields, error in (
            (
                '"options": {"fetch.min.byte": 1}',
                "sources.a.options: librdkafka has no option fetch.min.byte",
            ),
            (
                '"options": {"security.protocol": "TLS"}',
                "sources.a.options: security.protocol is TLS",
            ),
            (
                '"sasl": {"existingSecret": "k"}, "options": {"security.protocol": "plaintext"}',
                "security.protocol PLAINTEXT turns off the login of sasl: set SASL_PLAINTEXT",
            ),
            (
                '"sasl": {"existingSecret": "k"}, "options": {"security.protocol": "SSL"}',
                "security.protocol SSL turns off the login of sasl: set SASL_SSL",
            ),
            (
                '"options": {"sasl.username": "a"}',
                "security.protocol PLAINTEXT turns off the login of options.sasl.username",
            ),
            (
                '"tls": {"enabled": true}, "options": {"security.protocol": "PLAINTEXT"}',
                "options.security.protocol PLAINTEXT turns off tls.enabled: set SSL",
            ),
        )
    ),
]

# Values beside those that are refused.
RIGHT: list[list[str]] = [
    ["functions.read.scaling.min-scale=8"],
    ["functions.read.scaling.min-scale=9", "functions.read.scaling.max-scale=0"],  # no limit
    ["functions.read.resources.requests.memory=1Gi"],  # as the limit
    ["functions.read.resources.limits.cpu=1", "functions.read.resources.requests.cpu=1000m"],
    ["functions.read.resources.limits.memory=0.5G"],
    ["store.url=http://a/my.night-alerts-2"],
    ["store.url=http://a/tenant:alerts"],  # of RGW
    ["replica.url=http://ceph.site.svc:8001/stampede", "replica.existingSecret=a"],
    [f'sources={{"a": {{{SOURCE}, "options": {{"security.protocol": "sasl_ssl"}}}}}}'],
    [
        f'sources={{"a": {{{SOURCE}, "sasl": {{"existingSecret": "k"}}, '
        '"options": {"security.protocol": "SASL_SSL", "ssl.ca.location": "/etc/ca"}}}'
    ],
]


@pytest.mark.parametrize(("values", "error"), CONTRADICTIONS)
def test_the_error_explains_a_contradiction(values: list[str], error: str) -> None:
    arguments = [a for v in values for a in ("--set-json" if "{" in v else "--set", v)]
    assert error in rejected(*MINIMAL, *arguments)


@pytest.mark.parametrize("values", RIGHT)
def test_values_that_are_nearly_wrong_are_accepted(values: list[str]) -> None:
    arguments = [a for v in values for a in ("--set-json" if "{" in v else "--set", v)]
    done = template(*MINIMAL, *arguments)
    assert done.returncode == 0, done.stderr


def test_a_release_keeps_a_bucket_that_it_has() -> None:
    """Ceph may allow such a name: an upgrade must not stop what works."""
    capital = (*MINIMAL, "--set", "store.url=http://a/Stampede")
    refused = template(*capital)
    assert refused.returncode
    assert "a release that has such a bucket keeps it" in refused.stderr
    done = template(*capital, "--is-upgrade")
    assert done.returncode == 0, done.stderr


def test_the_chart_knows_the_options_of_librdkafka(tmp_path: Path) -> None:
    """Those that the library itself lists."""
    (path,) = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka-*")
    library, libc, listed = ctypes.CDLL(str(path)), ctypes.CDLL(None), tmp_path / "options.md"
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(bytes(listed), b"w"))
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    rows = re.findall(r"^(\S+) +\|", listed.read_text(), re.MULTILINE)
    names = set(rows) - {"Property"}
    assert len(names) > 150
    assert (CHART / "files" / "librdkafka.txt").read_text().split() == sorted(names)


def test_the_error_for_a_long_name_is_followed_by_advice() -> None:
    long = helm("template", "a" * 31, CHART, *VERSION, *MINIMAL)
    assert long.returncode
    assert "longer than 30 characters" in long.stderr
    assert "Set fullnameOverride" in long.stderr
    short = helm("template", "a" * 31, CHART, *VERSION, *MINIMAL, "--set", "fullnameOverride=short")
    assert short.returncode == 0


def test_every_value_is_documented() -> None:
    """values.yaml describes each value in a comment `# --`, and the chart's README lists it."""
    lines = (CHART / "values.yaml").read_text().splitlines()
    readme = (CHART / "README.md").read_text()
    names = {line: name for name, line in value_lines(yaml.compose("\n".join(lines)), ())}
    undocumented = [name for line, name in names.items() if not described(lines, line)]
    assert undocumented == []
    listed = re.findall(r"^\| `([^`]+)`", readme, re.MULTILINE)
    generic = [re.sub(r"^functions\.[^.]+\.", "functions.NAME.", name) for name in names.values()]
    assert listed == list(dict.fromkeys(listed)), "a value is listed twice"
    assert set(listed) == set(generic)


def test_every_setting_has_a_value() -> None:
    """A setting is in the schema, unless another value or the function determines it."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    allowed = schema["$defs"]["settings"]["properties"].keys()
    assert allowed | DETERMINED == Settings.model_fields.keys()
    assert not allowed & DETERMINED


# Settings that other values, or a function's environment, determine.
DETERMINED = {
    *("host", "port", "socket", "spool", "namespace", "source_name", "triggers", "subscribers"),
    *("tokens", "metrics_port", "from_kafka"),
    *("store", "access_key", "secret_key", "keys", "region", "ca_file"),
    *("replica", "replica_access_key", "replica_secret_key", "replica_keys"),
    *("replica_region", "replica_ca_file", "kafka_keys"),
    *("group_instance_id", "source_replicas"),
    *(
        "other_topics",
        "kafka",
        "topics",
        "group",
        "topic_epoch",
        "kafka_options",
        "retries",
        "backoff_seconds",
    ),
    *("event_key", "second_event_key", "proof_key"),
    *("schema_registry_user", "schema_registry_password", "schema_registry_token"),
    *("schema_registry_keys", "schema_registry_ca"),
    *("sender_issuer", "sender_audience", "sender_subjects", "sender_tokens_only"),
    *("sender_issuer_ca", "sender_issuer_token", "sender_token"),
    *(
        "sink",
        "sinks",
        "sink_token",
        "dead_letter_sink",
        "ce_overrides",
        "notifications",
        "functions",
    ),
    "installation",
}


def value_lines(node: yaml.Node, path: tuple[str, ...]) -> Iterator[tuple[str, int]]:
    """Dotted name and line number of every value that needs a description."""
    assert isinstance(node, yaml.MappingNode)
    for key, value in node.value:
        name = (*path, key.value)
        leaf = not isinstance(value, yaml.MappingNode) or value.flow_style or not value.value
        if leaf or key.value in ("scaling", "settings", "resources", "labels"):
            yield ".".join(name), key.start_mark.line
        else:
            yield from value_lines(value, name)


def described(lines: list[str], line: int) -> bool:
    """Whether the comment above a line begins with `# --`."""
    while line and lines[line - 1].lstrip().startswith("#"):
        line -= 1
        if lines[line].lstrip().startswith("# -- "):
            return True
    return False


@pytest.mark.parametrize("case", CASES)
def test_the_notes_name_existing_objects(tmp_path: Path, case: str) -> None:
    text = notes(tmp_path, "--values", CHART / "ci" / f"{case}.yaml")
    services = objects(case, "Service")
    for name in re.findall(r"http://([a-z0-9-]+)\.sky\.svc", text):
        assert name in services
    for name in re.findall(r"get services.serving.knative.dev (\S+)", text):
        assert name in services
    for name in re.findall(r"deployment/(\S+)", text):
        assert name in objects(case, "Deployment")
    (first,) = re.findall(r"installed as (\S+): (.*)\.$", text, re.MULTILINE)
    assert {f"{first[0]}-{function}" for function in first[1].split(", ")} == set(services)
    assert {"--namespace sky"} == set(re.findall(r"--namespace \S+", text))
