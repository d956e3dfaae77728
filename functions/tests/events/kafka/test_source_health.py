"""What a source says of itself, by the reports of its Kafka client."""

import json
from types import SimpleNamespace
from typing import Any

import pytest

from stampede.events.kafka import source_health
from stampede.events.kafka.source_health import SourceHealth


def report(**changes: Any) -> dict[str, Any]:
    """A report of a client that is well: two brokers, two partitions of its own, one of another."""

    def partition(leader: int, state: str, committed: int, low: int, high: int) -> dict[str, Any]:
        return {
            "leader": leader,
            "fetch_state": state,
            "committed_offset": committed,
            "lo_offset": low,
            "hi_offset": high,
        }

    return {
        "brokers": {
            "kafka:9092/bootstrap": {"name": "kafka:9092", "nodeid": -1, "state": "DOWN"},
            "one:9092/1": {"name": "one:9092", "nodeid": 1, "state": "UP"},
            "two:9092/2": {"name": "two:9092", "nodeid": 2, "state": "UP"},
        },
        "topics": {
            "alerts": {
                "partitions": {
                    "0": partition(1, "active", 40, 10, 100),
                    "1": partition(2, "active", -1001, 5, 8),
                    "2": partition(2, "none", 7, 0, 9),
                    "-1": partition(-1, "none", -1001, -1001, -1001),
                }
            }
        },
        "cgrp": {"state": "up", "join_state": "steady"},
        **changes,
    }


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(source_health, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


def told(state: dict[str, Any]) -> SourceHealth:
    health = SourceHealth()
    health.told(json.dumps(state))
    return health


def test_a_member_with_connections_is_ready() -> None:
    assert told(report()).not_ready() is None


def test_before_the_first_report_it_is_not_ready(clock: list[float]) -> None:
    assert "not reported" in str(SourceHealth().not_ready())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"cgrp": {"state": "wait-broker", "join_state": "steady"}}, "coordinator"),
        ({"cgrp": {"state": "up", "join_state": "wait-join"}}, "joining .*: wait-join"),
        ({"cgrp": {}}, "coordinator"),
        (
            {"brokers": {"one:9092/1": {"name": "one:9092", "nodeid": 1, "state": "AUTH_REQ"}}},
            "no connection to Kafka: one:9092 AUTH_REQ",
        ),
        (
            {
                "brokers": {
                    "one:9092/1": {"name": "one:9092", "nodeid": 1, "state": "UP"},
                    "two:9092/2": {"name": "two:9092", "nodeid": 2, "state": "TRY_CONNECT"},
                }
            },
            "leader of alerts/1: two:9092",
        ),
        (
            {"brokers": {"one:9092/1": {"name": "one:9092", "nodeid": 1, "state": "UP"}}},
            "leader of alerts/1: none",
        ),
    ],
)
def test_what_keeps_alerts_away_is_told(changes: dict[str, Any], reason: str) -> None:
    health = told(report(**changes))
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(health.not_ready())
    assert health.not_alive() is None


def test_a_member_without_partitions_is_ready_unless_the_topic_is_missing() -> None:
    health = told(report(topics={}))
    assert health.not_ready() is None
    health.missing = {"alerts"}
    health.told(json.dumps(report(topics={}, cgrp={"state": "up", "join_state": "init"})))
    assert health.not_ready() == "Kafka has no topic alerts"


def test_an_old_report_says_nothing(clock: list[float]) -> None:
    health = told(report())
    clock[0] += 21
    health.polled()
    assert "not reported" in str(health.not_ready())
    assert health.not_alive() is None


def test_a_thread_that_stopped_is_neither_ready_nor_alive(clock: list[float]) -> None:
    health = told(report())
    clock[0] += 61
    health.told(json.dumps(report()))
    assert health.not_ready() == health.not_alive() == "Kafka was last asked for records 61 s ago"
    health.polled()
    health.learnt()
    assert health.not_ready() is health.not_alive() is None


def test_what_waits_is_known_from_the_report() -> None:
    assert told(report()).waiting == {("alerts", 0): (40, 100), ("alerts", 1): (5, 8)}


def test_a_source_that_does_not_learn_the_ids_of_its_topics_is_not_ready(
    clock: list[float],
) -> None:
    """It is connected, and passes over all that it reads."""
    health = told(report())
    clock[0] += source_health.UNLEARNT_SECONDS + 1
    health.polled()
    health.told(json.dumps(report()))
    assert health.not_ready() == "Kafka has not said the ids of the topics for 31 s: see the log"
    health.learnt()
    assert health.not_ready() is None
