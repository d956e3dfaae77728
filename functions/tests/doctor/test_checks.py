"""doctor: each fault that is made on real servers is named, with what repairs it."""

import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from stampede.cli.main import app
from stampede.config.settings import Settings
from stampede.deadletters.dead_letter import write_letters
from stampede.doctor import processes, stores
from stampede.doctor.checks import examine
from stampede.doctor.finding import Installation
from stampede.runtime.progress import silent
from stampede.store.ceph import bucket_notifications
from stampede.store.offsets.coverage import Coverage, topic_key
from stampede.store.open import first_site, open_objects
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.tables.table import Table
from stampede_local.kafka import LocalKafka
from stampede_local.ports import free_port
from tests.handlers.audit.test_audit import commit, make_anew, topic_id
from tests.support.events.dead_letters import event
from tests.support.events.kafka_messages import produce
from tests.support.store.watched_objects import Forwarding

pytestmark = pytest.mark.integration
MESSAGES = 3


@pytest.fixture
def healthy(serve, bucket: Settings, kafka: LocalKafka, topic: str) -> Installation:
    """A store that notifies, a Kafka topic, and all of its messages stored."""
    receiver = serve("notifications", SINK="http://127.0.0.1:9/")
    settings = bucket.model_copy(
        update={"kafka": kafka.bootstrap, "topics": topic, "notifications": receiver.url}
    )
    bucket_notifications.setup(settings, silent)
    produce(kafka.bootstrap, topic, [b"alert"] * MESSAGES)
    objects = open_objects(settings)
    for spec in (CUTOUTS, DETECTIONS):
        rows = spec.schema.empty_table()
        Table(objects, spec).append(rows, Coverage.of({(topic, 0): range(MESSAGES)}))
    return Installation(settings, {"notifications": receiver.url})


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_SECONDS", 0)


def faults(installation: Installation) -> list[str]:
    """What is wrong, and what repairs it, one line each."""
    return [
        f"{finding.level} {result.check}: {finding.fault} -> {finding.repair}"
        for result in examine(installation)
        for finding in result.findings
    ]


def changed(installation: Installation, **settings: object) -> Installation:
    return installation._replace(settings=installation.settings.model_copy(update=settings))


Seed = Callable[[Installation], Installation]


def without_tables(installation: Installation) -> Installation:
    site = first_site(installation.settings)
    name = installation.settings.store.rpartition("/")[2]
    bucket_notifications.NotifyingBucket(site)._send(
        "DELETE", f"/{name}", {"notification": "stampede-tables"}
    )
    return installation


def without_topic(installation: Installation) -> Installation:
    bucket_notifications.remove(installation.settings, silent)
    return installation


def dead_letter(installation: Installation) -> Installation:
    letter = event(MESSAGES, topic=installation.settings.topics)
    open_objects(installation.settings).put(*write_letters("cutouts", [letter]))
    return installation


def damaged_run(installation: Installation) -> Installation:
    key = f"tables/cutouts/0000-{'a' * 32}.parquet"
    open_objects(installation.settings).put(key, b"what is this?")
    return installation


def gap(installation: Installation) -> Installation:
    """Two more messages, and only the second is stored."""
    settings = installation.settings
    produce(settings.kafka, settings.topics, [b"alert"] * 2)
    coverage = Coverage.of({(settings.topics, 0): [MESSAGES + 1]})
    for spec in (CUTOUTS, DETECTIONS):
        Table(open_objects(settings), spec).append(spec.schema.empty_table(), coverage)
    return installation


def new_partition(installation: Installation) -> Installation:
    """A message that no source has begun to read: the group has committed others."""
    settings = installation.settings
    commit(settings, settings.topics, {0: MESSAGES})
    producer = Producer({"bootstrap.servers": settings.kafka})
    producer.produce(settings.topics, b"alert", partition=2)
    assert producer.flush(30) == 0
    return installation


def moved(installation: Installation) -> Installation:
    """What was stored has the topic's id, and then Kafka has another one of its name."""
    settings = installation.settings
    key = topic_key(settings.topics, topic_id(settings, settings.topics))
    for spec in (CUTOUTS, DETECTIONS):
        rows = spec.schema.empty_table()
        Table(open_objects(settings), spec).append(rows, Coverage.of({(key, 0): range(MESSAGES)}))
    make_anew(settings, settings.topics)
    produce(settings.kafka, settings.topics, [b"alert"] * MESSAGES)
    return installation


PORT = free_port()
MOVED = (
    r"warning ledger: topic .* has another id than the one stored before \([\w-]{22}\): "
    "Kafka was moved or the topic made anew -> docs/how-to/topic-made-anew.md"
)
SEEDS: dict[str, tuple[Seed, str]] = {
    "secret key": (
        lambda p: changed(p, secret_key=Settings(secret_key="wrong").secret_key),
        "error store: the store does not let us list: .*the secret key is wrong",
    ),
    "bucket": (
        lambda p: changed(p, store=f"{p.settings.store}x"),
        "error store: .*no such bucket.*stampede setup",
    ),
    "address": (
        lambda p: changed(p, store=f"http://127.0.0.1:{PORT}/bucket"),
        "error store: .*cannot connect",
    ),
    "second site": (
        lambda p: changed(
            p,
            replica=f"{p.settings.store}x",
            replica_access_key=p.settings.access_key,
            replica_secret_key=p.settings.secret_key,
        ),
        "error second site: .*no such bucket",
    ),
    "no topic of notifications": (without_topic, "error notifications: .*has no topic.*setup"),
    "no notification": (
        without_tables,
        "error notifications: .*no notifications of tables/.*setup",
    ),
    "receiver": (
        lambda p: changed(p, notifications=f"http://127.0.0.1:{PORT}")._replace(urls={}),
        "error notifications: nothing at .* takes notifications",
    ),
    "Kafka": (
        lambda p: changed(p, kafka=f"127.0.0.1:{PORT}"),
        "error Kafka: .*does not answer",
    ),
    "topic": (lambda p: changed(p, topics="nights"), "error Kafka: .*it has no such topic"),
    "idle source": (
        lambda p: changed(p, source_replicas=5),
        "error Kafka: 5 sources would share 4 partitions of .*: 1 would take no alert",
    ),
    "process": (
        lambda p: p._replace(urls={"cutouts": f"http://127.0.0.1:{PORT}"}),
        "error processes: cutouts is not ready",
    ),
    "dead letter": (dead_letter, "warning ledger: 1 alert is a dead letter -> .*deadletters list"),
    "damaged run": (damaged_run, "error ledger: tables/cutouts/.* is damaged.*audit --deep"),
    "new partition": (
        new_partition,
        "warning lag: no source has begun to read .*/2 for cutouts, which has 1 message -> .*",
    ),
    "another Kafka": (moved, MOVED),
    "missing alert": (gap, "error ledger: 1 alert of .*/0 is missing in cutouts -> .*audit"),
}


def test_a_healthy_installation_has_no_errors(healthy: Installation) -> None:
    [nobody_reads, also] = faults(healthy)
    for table, line in (("cutouts", nobody_reads), ("detections", also)):
        assert line.startswith("warning lag: the group stampede has read nothing of ")
        assert f" for {table} -> " in line
    assert not [*open_objects(healthy.settings).list("check-")]


@pytest.mark.parametrize("fault", SEEDS)
def test_each_fault_is_named(healthy: Installation, fault: str) -> None:
    seed, words = SEEDS[fault]
    found = faults(seed(healthy))
    assert any(re.search(words, line) for line in found), found


def test_a_topic_that_was_made_anew_long_ago_is_not_told(healthy: Installation) -> None:
    """Kafka keeps messages for so long, and has deleted the first of the new topic."""
    settings = moved(healthy).settings
    assert any(re.search(MOVED, line) for line in faults(healthy))
    admin = AdminClient({"bootstrap.servers": settings.kafka})
    (deleted,) = admin.delete_records([TopicPartition(settings.topics, 0, 1)]).values()
    deleted.result(30)
    assert not any(re.search(MOVED, line) for line in faults(healthy))


def test_before_an_installation_only_what_it_needs_is_examined(healthy: Installation) -> None:
    """The installation makes the bucket and the notifications, and a source waits for its topic."""
    before = healthy._replace(installed=False)
    assert faults(before) == []
    site = f"{healthy.settings.store}x"
    assert faults(changed(gap(dead_letter(before)), store=site)) == []
    [topic] = faults(changed(before, topics="nights"))
    assert re.match("warning Kafka: .*no such topic", topic)
    for fault in ("secret key", "address", "Kafka", "idle source"):
        seed, words = SEEDS[fault]
        assert any(re.search(words, line) for line in faults(seed(before))), fault


def test_a_wrong_clock_is_named(healthy: Installation, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ahead(Forwarding):
        def now(self) -> datetime:
            return super().now() + timedelta(minutes=5)

    monkeypatch.setattr(stores, "open_objects", lambda settings: Ahead(open_objects(settings)))
    # Objects have times in whole seconds.
    assert re.match(
        "warning store: the clock of the store is (299|30[01]) s ahead of", faults(healthy)[0]
    )


def test_the_command_has_exit_codes_and_json(
    bucket: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = tmp_path / "store"
    monkeypatch.setenv("STAMPEDE_STORE", f"file://{store}")
    well = CliRunner().invoke(app, ["doctor"])
    assert well.exit_code == 0, well.output
    assert "ok store: The store answers" in well.output
    # What there is none of is not said to be well.
    confirmed = re.findall(r"^ok ([\w ]+):", well.output, re.MULTILINE)
    assert confirmed == ["variables", "store", "ledger"]
    monkeypatch.setenv("STAMPEDE_STOER", "x")
    typo = CliRunner().invoke(app, ["doctor"])
    assert typo.exit_code == 1
    assert "did you mean STAMPEDE_STORE?" in typo.output
    monkeypatch.setenv("STAMPEDE_STORE", f"http://127.0.0.1:{PORT}/bucket")
    down = CliRunner().invoke(app, ["doctor", "--json"])
    assert down.exit_code == 2
    levels = {each["check"]: each["level"] for each in json.loads(down.stdout)}
    assert levels["store"] == "error"
    assert levels["ledger"] == levels["notifications"] == levels["second site"] == "skipped"
    reasons = {each["check"]: each["skipped"] for each in json.loads(down.stdout)}
    assert reasons["ledger"] == "store has an error"
    assert reasons["second site"] == "STAMPEDE_REPLICA is not set"


@pytest.mark.parametrize("name", ["access_key", "replica_access_key"])
def test_keys_that_are_not_set_are_named(healthy: Installation, name: str) -> None:
    store = healthy.settings.store
    lines = faults(
        changed(healthy, replica=f"{store}x")
        if "replica" in name
        else changed(healthy, **{name: ""})
    )
    assert any(f"STAMPEDE_{name.upper()} is not set" in line for line in lines), lines
