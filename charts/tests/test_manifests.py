"""The manifests are valid, and match the chart."""

import asyncio
import os
import re
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml
from origins import CUSTOM, Module
from pydantic import SecretStr
from rendering import CHART, KUBERNETES, ROOT, Object, containers, environment, helm, pods
from schemas import Schemas

from stampede.config.settings import Settings
from stampede.errors import NotAuthorized
from stampede.events.auth.access import senders, url_with_key
from stampede.store.ceph.bucket_notifications import PREFIXES
from stampede_local.cli import TOPICS

MANIFESTS = ROOT / "manifests"
FILES = sorted(
    [*MANIFESTS.rglob("*.yaml"), *(ROOT / "eventing").glob("*.yaml")],
    key=lambda path: path.relative_to(ROOT).as_posix(),
)


def read(path: Path) -> list[Object]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def objects(path: str, kind: str) -> list[Object]:
    return [each for each in read(MANIFESTS / path) if each["kind"] == kind]


def installed() -> list[Object]:
    """The objects of the chart, installed as the READMEs in manifests/ describe."""
    done = helm(
        *("template", "stampede", CHART, "--namespace", "stampede"),
        *("--kube-version", KUBERNETES),
        *("--values", CHART / "ci" / "minimal.yaml"),
        *("--set", "sources.lsst.bootstrapServers={kafka:9092}"),
        *("--set", "sources.lsst.topics={lsst-alerts}"),
    )
    assert done.returncode == 0, done.stderr
    return [each for each in yaml.safe_load_all(done.stdout) if each]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_object_is_valid(schemas: Schemas, path: Path) -> None:
    documents = read(path)
    assert documents
    errors = [
        f"{each['kind']} {each['metadata']['name']}: {problem}"
        for each in documents
        for problem in schemas.problems(each)
    ]
    assert errors == []


@pytest.mark.parametrize(
    ("path", "kind", "field"),
    [
        ("rook/user.yaml", "CephObjectStoreUser", "stores"),
        ("rook/bucket.yaml", "CephBucketTopic", "persist"),
        ("rook/bucket.yaml", "CephBucketNotification", "prefix"),
        ("rook/bucket.yaml", "ObjectBucketClaim", "bucket"),
        ("strimzi/topics.yaml", "KafkaTopic", "partition"),
        ("strimzi/user.yaml", "KafkaUser", "acls"),
    ],
)
def test_a_misspelt_field_is_an_error(schemas: Schemas, path: str, kind: str, field: str) -> None:
    each = objects(path, kind)[0]
    each["spec"][field] = "x"
    (problem,) = schemas.problems(each)
    assert f"'{field}' was unexpected" in problem


def test_rook_creates_the_same_notifications_as_setup() -> None:
    (claim,) = objects("rook/bucket.yaml", "ObjectBucketClaim")
    (topic,) = objects("rook/bucket.yaml", "CephBucketTopic")
    notifications = objects("rook/bucket.yaml", "CephBucketNotification")
    prefixes = {
        each["metadata"]["name"]: rule["value"]
        for each in notifications
        for rule in each["spec"]["filter"]["keyFilters"]
    }
    assert prefixes == {
        f"stampede-{prefix.strip('/').replace('/', '-')}": prefix for prefix in PREFIXES
    }
    assert {each["spec"]["topic"] for each in notifications} == {topic["metadata"]["name"]}
    assert claim["metadata"]["labels"] == {f"bucket-notification-{name}": name for name in prefixes}
    assert {each["metadata"]["namespace"] for each in [claim, topic, *notifications]} == {
        "stampede"
    }


def test_rooks_topic_pushes_to_the_relay_with_the_key_of_events() -> None:
    """To the URL that `stampede setup` gives the store for this key."""
    (topic,) = objects("rook/bucket.yaml", "CephBucketTopic")
    jobs = [each for each in installed() if each["kind"] == "Job"]
    urls = {
        url
        for job in jobs
        for pod in pods(job)
        for container in containers(pod)
        if (url := environment(container).get("STAMPEDE_NOTIFICATIONS"))
    }
    (url,) = urls
    key = "a-key-of-the-tests"
    settings = Settings(event_key=SecretStr(key))
    placed = topic["spec"]["endpoint"]["http"]["uri"].replace("EVENT-KEY", key)
    assert placed == url_with_key(str(url), settings)
    accepted = senders(settings)
    asyncio.run(accepted.check((), urlsplit(placed).path))
    with pytest.raises(NotAuthorized):
        asyncio.run(accepted.check((), urlsplit(str(url)).path))


def test_rooks_readme_puts_in_the_key_and_installs_with_the_claim_s_secret() -> None:
    """Its commands: one replaces what the manifest has, the other gives what the chart needs."""
    readme = (MANIFESTS / "rook" / "README.md").read_text()
    text = (MANIFESTS / "rook" / "bucket.yaml").read_text()
    (placeholder,) = re.findall(r'sed "s/([A-Z-]+)/\$EVENT_KEY/"', readme)
    code = [line for line in text.splitlines() if not line.startswith("#")]
    assert [placeholder in line for line in code].count(True) == 1
    command = readme[
        readme.index("$ helm install stampede charts/stampede", readme.index("sed ")) :
    ]
    values = re.findall(r"--set (\S+)", command[: command.index("```")])
    done = helm(
        *("template", "stampede", CHART, "--namespace", "stampede", "--kube-version", KUBERNETES),
        *(argument for value in values for argument in ("--set", value)),
    )
    assert done.returncode == 0, done.stderr
    assert 'key: "AWS_ACCESS_KEY_ID", path: access-key' in done.stdout


def test_strimzis_topics_accept_the_largest_alert() -> None:
    topics = objects("strimzi/topics.yaml", "KafkaTopic")
    assert tuple(each["metadata"]["name"] for each in topics) == TOPICS
    for each in topics:
        assert each["spec"]["config"]["max.message.bytes"] > Settings().max_alert_bytes


def test_strimzis_user_may_read_the_chart_s_topics_and_groups() -> None:
    (user,) = objects("strimzi/user.yaml", "KafkaUser")
    rules = [rule["resource"] for rule in user["spec"]["authorization"]["acls"]]
    topics = {rule["name"] for rule in rules if rule["type"] == "topic"}
    (groups,) = (rule["name"] for rule in rules if rule["type"] == "group")
    assert topics == set(TOPICS)
    sources = [
        each
        for each in installed()
        if each["kind"] == "Deployment" and "stampede/source" in each["metadata"]["labels"]
    ]
    assert sources
    for source in sources:
        (container,) = source["spec"]["template"]["spec"]["containers"]
        assert environment(container)["STAMPEDE_GROUP"].startswith(groups)


def test_the_documented_knatives_are_the_oldest_by_schema_and_the_one_that_tests_run() -> None:
    """The modules of Knative 1.20 have the version 0.47, those of 1.23 have 0.50."""
    text = (MANIFESTS / "knative" / "README.md").read_text()
    modules = ("knative.dev/serving", "knative.dev/eventing")
    pins = {each.version for each in CUSTOM if isinstance(each, Module) and each.path in modules}
    programs = (ROOT / "e2e" / "cluster" / "built" / "programs" / "go.mod").read_text()
    runs = set(re.findall(r"knative\.dev/(?:serving|eventing) (v\S+)", programs))
    assert (pins, runs) == ({"v0.47.0"}, {"v0.50.0"})
    assert pins | runs == {f"v{each}" for each in re.findall(r"0\.\d+\.\d+", text)}
    assert set(re.findall(r"knative-v([0-9.]+)/?", text)) == {"1.23.0"}


@pytest.mark.parametrize("number", [1, 8, 32])
def test_the_command_in_its_header_sets_the_pods_of_the_stress_job(
    schemas: Schemas, number: int
) -> None:
    manifest = MANIFESTS / "stress.yaml"
    (command,) = re.findall(
        r"^#   (sed .+) \| kubectl .+ apply", manifest.read_text(), re.MULTILINE
    )
    environ = os.environ | {"PODS": str(number)}
    done = subprocess.run(
        ["sh", "-c", command], cwd=ROOT, env=environ, capture_output=True, check=True
    )
    job = yaml.safe_load(done.stdout)
    assert schemas.problems(job) == []
    (container,) = containers(job["spec"]["template"])
    found = job["spec"]["completions"], job["spec"]["parallelism"]
    assert found == (number, number)
    assert environment(container)["STAMPEDE_STRESS_PODS"] == str(number)


@pytest.mark.parametrize("page", sorted(MANIFESTS.rglob("README.md")), ids=lambda p: p.parent.name)
def test_paths_in_commands_exist(page: Path) -> None:
    for target in re.findall(r"(?:manifests|charts)/[a-z/]+[a-z.]*", page.read_text()):
        assert (ROOT / target).exists(), target
