"""What the pages about Rubin's and ZTF's stream quote of Stampede is what Stampede says."""

import re
import socket
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from stampede.alerts.framing import built_in_schema
from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.doctor import kafka
from stampede.doctor.checks import CHECKS
from stampede.doctor.finding import Finding, Installation
from stampede.doctor.registry import registry
from stampede.errors import SetupError, StampedeError
from stampede.events.kafka.errors import reason
from stampede.events.kafka.login import KafkaLogin
from stampede.events.kafka.source_health import fault
from stampede.events.kafka.topics import KafkaTopics
from tests.doctor.test_kafka import Closed, Nights
from tests.support.events.refusing_kafka import LOGIN, refusing_kafka

HOW_TO = Path(__file__).parents[3] / "docs" / "how-to"
PAGES = {survey: (HOW_TO / f"connect-{survey}.md").read_text() for survey in ("rubin", "ztf")}
NIGHT = f"{date.today():%Y%m%d}"
FAMILIES = {"rubin": "lsst-alerts-v{n}", "ztf": "ztf_{YYYYMMDD}_programid1"}
DOWN: dict[str, Any] = {"brokers": {"a": {"name": "a:9094", "nodeid": 1, "state": "DOWN"}}}
UP: dict[str, Any] = {"brokers": {"a": {"name": "a:9094", "nodeid": 1, "state": "UP"}}}


def quoted(survey: str) -> set[str]:
    """The messages in the second column of the page's table of troubles."""
    _, _, table = PAGES[survey].partition("\n## What goes wrong\n")
    rows = [line.split(" | ")[1] for line in table.splitlines() if line.startswith("| ")][1:]
    texts = {text for row in rows for text in re.findall("`([^`]+)`", row)}
    return {text for text in texts if re.search("[ =]", text) and text != "stampede audit"}


def installation(**settings: Any) -> Installation:
    return Installation(Settings(**settings), {}, installed=True)


def faults(findings: Iterator[Finding]) -> list[str]:
    return [finding.fault for finding in findings]


class Kafka(Closed):
    """A Kafka that has topics, and says of none that it may be read."""

    existing: frozenset[str] = frozenset()

    def names(self) -> frozenset[str]:
        return self.existing


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """What Stampede says of each trouble."""
    return [
        *of_connections(),
        *of_topics(monkeypatch),
        *of_schemas(),
        *of_sources(tmp_path),
    ]


def of_connections() -> Iterator[str]:
    """Of a Kafka that refuses the password, and of one that does not answer."""
    with socket.create_server(("127.0.0.1", 0)) as silent, refusing_kafka() as refusing:
        for where in (f"127.0.0.1:{silent.getsockname()[1]}", refusing):
            settings = Settings(kafka=where, kafka_options=LOGIN)
            with KafkaTopics(settings, 2.0) as reader, pytest.raises(SetupError) as caught:
                reader.names()
            yield caught.value.message


def of_topics(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What `doctor` says of topics and groups."""
    monkeypatch.setattr(kafka, "KafkaTopics", Kafka)
    yield from faults(kafka.lag(installation(kafka="a", topics="a", group="night")))
    for family in FAMILIES.values():
        yield from faults(kafka.kafka(installation(kafka="a", topics=family)))
    monkeypatch.setattr(Kafka, "existing", frozenset({"lsst-alerts-v11", "lsst-alerts-v12"}))
    yield from faults(kafka.unread(installation(kafka="a", topics="lsst-alerts-v11")))
    monkeypatch.setattr(Kafka, "existing", frozenset({f"ztf_{NIGHT}_programid2"}))
    yield from faults(kafka.unread(installation(kafka="a", topics=FAMILIES["ztf"])))
    yield from faults(kafka._partition_lag("cutouts", "night", ("alerts", 0), 5, (10, 20)))
    monkeypatch.setattr(kafka, "KafkaTopics", Nights)
    yield from faults(kafka.unread(installation(kafka="a", topics=FAMILIES["ztf"])))
    yield of_a_topic_that_may_not_be_read("lsst-alerts-v12")
    with pytest.raises(ValueError, match="neither") as caught:
        Topics.parse("ztf_.*_programid1")
    yield str(caught.value)


def of_a_topic_that_may_not_be_read(topic: str) -> str:
    error = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    metadata = SimpleNamespace(topics={topic: SimpleNamespace(error=error, partitions={})})
    client = SimpleNamespace(list_topics=lambda *_: metadata, close=lambda: None)
    with KafkaTopics(Settings(kafka="a")) as reader:
        reader.__dict__["_consumer"] = client
        with pytest.raises(SetupError) as caught:
            reader.partitions(topic)
    return caught.value.message


def of_schemas() -> Iterator[str]:
    """Of a registry that is not there, and a version that is not built in."""
    yield from faults(registry(installation(schema_registry="http://127.0.0.1:1/schema-registry")))
    with pytest.raises(StampedeError) as caught:
        built_in_schema(1200)
    yield caught.value.message


def of_sources(empty: Path) -> Iterator[str]:
    """What a source says of itself, and of its Secret."""
    yield fault(DOWN | {"topics": {}}) or ""
    yield fault(UP | {"topics": {}, "cgrp": {"state": "wait-coord"}}) or ""
    refused = KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED)
    yield from (f"error={refused.name()}", reason(refused))
    yield "SASL authentication error"  # librdkafka's own words: test_source_recovery.py
    with pytest.raises(SetupError) as caught:
        KafkaLogin(Settings(kafka_keys=str(empty)))
    yield caught.value.message


@pytest.mark.parametrize("survey", PAGES)
def test_each_message_of_the_page_is_said(survey: str, said: list[str]) -> None:
    texts = quoted(survey)
    assert len(texts) >= 7
    for text in texts:
        pattern = ".*".join(map(re.escape, text.split("…")))
        assert any(re.search(pattern, each) for each in said), text


@pytest.mark.parametrize("survey", PAGES)
def test_what_doctor_says_when_all_is_well(survey: str) -> None:
    lines = re.findall(r"^ok ([^:]+): (.+)$", PAGES[survey], re.MULTILINE)
    assert len(lines) == (4 if survey == "rubin" else 3)
    for check, well in lines:
        assert well == (CHECKS[check].check.__doc__ or "").partition("\n")[0]


def test_the_capacity_is_that_of_the_plan() -> None:
    plan = (HOW_TO / "plan-capacity.md").read_text()
    rows = re.findall(r"^\| \*\*Stampede: pods; cores\*\* \| (.+) \|$", plan, re.MULTILINE)
    pods, cores = rows[0].split(" | ")[2].strip("*").split("; ")  # LSST, 1,000/s
    assert f"{pods} pods and {cores} cores" in PAGES["rubin"]
