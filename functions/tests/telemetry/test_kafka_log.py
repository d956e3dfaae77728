"""librdkafka's messages, of real clients that reach no broker: lines of JSON, and few of them."""

import json
import time

import confluent_kafka
import pytest

from stampede.config.settings import Settings
from stampede.events.kafka.client_options import consumer_options, reader_options
from stampede.telemetry import kafka_log
from stampede.telemetry.kafka_log import KafkaLog
from stampede.telemetry.logs import configure_logs
from stampede_local.ports import free_port


def lines(capfd: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    """What was written: nothing but lines of JSON on stderr."""
    written = capfd.readouterr()
    assert written.out == ""
    return [json.loads(line) for line in written.err.splitlines()]


@pytest.mark.parametrize("kind", ["consumer", "reader"])
def test_a_broker_that_is_down_is_one_line_of_json(
    kind: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_logs()
    log = KafkaLog()
    monkeypatch.setattr("stampede.events.kafka.client_options.KAFKA_LOG", log)
    port = free_port()
    often = {"reconnect.backoff.ms": "10", "reconnect.backoff.max.ms": "50"}
    settings = Settings(kafka=f"127.0.0.1:{port}", kafka_options=often)
    options = (
        consumer_options(settings, settings.kafka_options, lambda *_: None, lambda _: None)
        if kind == "consumer"
        else reader_options(settings, settings.kafka_options)
    )
    consumer = confluent_kafka.Consumer(options)
    consumer.subscribe(["sky"])
    deadline = time.monotonic() + 10
    while not sum(log._repeated.values()) and time.monotonic() < deadline:
        consumer.poll(0.1)
    consumer.close()
    assert sum(log._repeated.values())
    written = lines(capfd)
    failures = [line for line in written if line["facility"] == "FAIL"]
    assert len(failures) == 1
    assert failures[0]["event"] == "librdkafka"
    assert failures[0]["level"] == "error"
    assert f"127.0.0.1:{port}" in str(failures[0]["message"])
    assert "failed" in str(failures[0]["message"])


def test_a_message_that_repeats_is_written_again_later_with_its_number(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    configure_logs()
    monkeypatch.setattr(kafka_log, "MOST", 3)
    log, now = KafkaLog(), 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    for state in range(5):
        log.log(40, "", "FAIL", "a", f"refused (after {state} ms)")
    log.log(30, "", "SESSTMOUT", "a", "a timeout")
    now += 61
    log.log(40, "", "FAIL", "a", "refused (after 9 ms)")
    log.log(20, "", "INFO", "a", "as it goes")
    found = [(line["level"], line["message"], line.get("repeated")) for line in lines(capfd)]
    assert found == [
        ("error", "refused (after 0 ms)", None),
        ("warning", "a timeout", None),
        ("error", "refused (after 9 ms)", 4),
        ("info", "as it goes", None),
    ]
    for number in range(20):
        log.log(30, "", chr(65 + number), "a", "other")
    assert len(log._written) <= 3
