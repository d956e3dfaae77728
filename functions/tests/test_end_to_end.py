"""An alert from Kafka to `read`: sources, functions and Ceph, each a process."""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.handlers.audit.audit import audit
from stampede.store.open import open_objects
from stampede_local.demo.oracle import digest, expected_alert
from stampede_local.kafka import LocalKafka, make_topics
from stampede_local.plan import SystemPlan
from stampede_local.ports import free_port
from stampede_local.system import System
from stampede_simulator.faults import FAULTS
from stampede_simulator.simulator import Fields, Mix, Simulator
from tests.support.alerts import made_alerts
from tests.support.store import stored_alerts

STORED_SECONDS = 150.0
Position = tuple[str, int, int]


@pytest.fixture
def system(
    bucket: Settings, kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[System]:
    """The whole system, on a Kafka and an S3 endpoint that already run."""
    monkeypatch.setenv("STAMPEDE_ACCESS_KEY", bucket.access_key)
    monkeypatch.setenv("STAMPEDE_SECRET_KEY", bucket.secret_key.get_secret_value())
    monkeypatch.setenv("STAMPEDE_GROUP", uuid.uuid4().hex)
    topics = tuple(f"{survey}-{uuid.uuid4().hex[:8]}" for survey in ("lsst", "ztf"))
    make_topics(kafka.bootstrap, topics)
    plan = SystemPlan(tmp_path, bucket.store, kafka.bootstrap, topics, free_port(), False)
    with System(plan, print, print) as running:
        yield running
    for process in running.processes.values():
        assert process.status == 0, process.tail()


@pytest.fixture
def send(system: System) -> Callable[[Iterable[bytes]], dict[Position, bytes]]:
    """Send messages to the topic of their survey; return the message at each Kafka position."""
    lsst, ztf = system.plan.topics

    def go(messages: Iterable[bytes]) -> dict[Position, bytes]:
        producer = Producer({"bootstrap.servers": system.settings.kafka, "linger.ms": 5})
        positions: dict[Position, bytes] = {}

        def note(error: object, message: object) -> None:
            assert error is None
            positions[message.topic(), message.partition(), message.offset()] = (
                message.value() or b""
            )

        for message in messages:
            producer.produce(ztf if message[:3] == b"Obj" else lsst, message, on_delivery=note)
            producer.poll(0)
        assert producer.flush(120) == 0
        return positions

    return go


def wait_until_stored(system: System) -> None:
    """Return when `audit` finds nothing missing."""
    objects = open_objects(system.settings)
    deadline = time.monotonic() + STORED_SECONDS
    while missing := [
        entry
        for entry in audit(objects, system.settings, Topics(system.plan.topics))
        if entry.missing or entry.stored + entry.dead_lettered != entry.received
    ]:
        assert time.monotonic() < deadline, missing
        time.sleep(0.3)


def reasons(fault: str) -> tuple[str, ...]:
    """Texts of which the reason of a dead letter contains one."""
    return {
        "empty": ("the message is empty",),
        "magic": ("neither",),
        "truncated": ("cut off", "do not fit"),
        "trailing": ("left over",),
        "zeros": ("left over", "do not fit"),
        "unknown-schema": ("unknown schema id 9999", "schema"),
        "wrong-schema": ("do not fit", "left over", "cut off", "schema"),
        "no-time": ("no observation time",),
        "future": ("in the future",),
        "not-fits": ("is not FITS",),
    }[fault]


def test_simulated_alerts(system: System, send) -> None:
    simulator = Simulator(
        21,
        Fields(objects=20),
        Mix(solar_system=0.15, null_cutouts=0.1, duplicates=0.1, corrupt=0.15),
    )
    alerts = list(simulator.alerts(600))
    by_body = {alert.body: alert for alert in alerts}
    assert {alert.fault for alert in alerts} == {None, *FAULTS}
    assert {"lsst", "ztf"} == {alert.survey for alert in alerts if alert.fault}
    assert any(alert.duplicate for alert in alerts)
    assert any(alert.kind == "mover" for alert in alerts)
    positions = send(alert.body for alert in alerts)
    assert len(positions) == 600
    wait_until_stored(system)

    objects, read = open_objects(system.settings), system.urls["read"]
    for number, table in enumerate(("cutouts", "detections")):
        due = {
            position: FAULTS[alert.fault][number]
            for position, body in positions.items()
            if (alert := by_body[body]).fault and FAULTS[alert.fault][number] >= 300
        }
        found = stored_alerts.letters(objects, table)
        assert {position: int(letter.code) for position, letter in found.items()} == due
        for position, letter in found.items():
            assert letter.data == positions[position]
            fault = by_body[letter.data].fault
            assert fault
            assert any(reason in letter.reason for reason in reasons(fault)), (fault, letter.reason)

    good = [alert for alert in alerts if alert.fault is None]
    stored = stored_alerts.stored_cutouts(read, [alert.alert_id for alert in alerts])
    assert not stored_alerts.differences(stored_alerts.cutouts_of(good), stored)
    assert len(stored) > 1000
    assert stored_alerts.assert_light_curves(read, simulator) > 1000


@pytest.mark.real
@pytest.mark.skipif(not made_alerts.REAL.exists(), reason="needs the real alerts of ../shared/data")
def test_real_alerts(system: System, send) -> None:
    messages = made_alerts.real_alerts()
    assert len(send(messages)) == len(messages)
    wait_until_stored(system)
    entries = audit(open_objects(system.settings), system.settings, Topics(system.plan.topics))
    assert Counter(entry.dead_lettered for entry in entries).keys() == {0}
    expected = [alert for message in messages if (alert := expected_alert(message))]
    assert len(expected) == len(messages)
    read = system.urls["read"]
    stored = stored_alerts.stored_cutouts(read, [alert.alert_id for alert in expected])
    assert {key: digest(fits) for key, fits in stored.items()} == {
        (alert.survey, alert.alert_id, kind): value
        for alert in expected
        for kind, value in alert.cutouts.items()
    }
    sent_detections = {(alert.survey, alert.object_id, alert.alert_id) for alert in expected}
    points = stored_alerts.light_curve_points(read, {alert.object_id for alert in expected})
    assert sent_detections <= points
