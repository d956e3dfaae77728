"""Fifteen nights of ZTF and a change of Rubin's version, in one run of `stampede up`."""

import json
import signal
import time
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from e2e.commands import run, until
from e2e.stampede_up import StampedeUp, stored_counts
from stampede_local.kafka import make_topics
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.simulator import Simulator
from tests.support.store import stored_alerts

SEED = 11
NIGHTS, EACH = 15, 12
MISSING = 4  # of this night there is no topic
EXPIRED = 7  # of this one `lightcurves` has read nothing when Kafka deletes it
RENAMED = 10  # since then Rubin has another version
FAMILIES = "ztf_{YYYYMMDD:20}_programid1,lsst-alerts-v{n}"
READ_SECONDS = 60
pytestmark = pytest.mark.timeout(900)


class Survey:
    """Sends the alerts of the simulator, some at a time, to topics that it makes."""

    def __init__(self, kafka: str) -> None:
        self._kafka = kafka
        self._producer = Producer({"bootstrap.servers": kafka})
        alerts = [*Simulator(SEED).alerts(4 * NIGHTS * EACH)]
        self._alerts: dict[str, Iterator[SimulatedAlert]] = {
            survey: iter([each for each in alerts if each.survey == survey])
            for survey in ("ztf", "lsst")
        }
        self.topics: list[str] = []
        self.sent: list[int] = []

    def send(self, topic: str, survey: str) -> None:
        """Send `EACH` alerts to a topic, which is made if it is new."""
        if topic not in self.topics:
            make_topics(self._kafka, [topic], 2)
            self.topics.append(topic)
        for alert in islice(self._alerts[survey], EACH):
            self._producer.produce(topic, alert.body)
            self.sent.append(alert.alert_id)
        assert self._producer.flush(30) == 0

    def delete(self, topic: str) -> None:
        """Let a topic expire."""
        admin = AdminClient({"bootstrap.servers": self._kafka})
        admin.delete_topics([topic])[topic].result(30)


def night(day: date, programme: int = 1) -> str:
    """The topic of a night."""
    return f"ztf_{day:%Y%m%d}_programid{programme}"


def stored_in_cutouts(up: StampedeUp, count: int) -> bool:
    """Whether so many alerts are stored."""
    return stored_counts(up.audit()).get("cutouts", (0, 0, 0))[1] == count


def findings(up: StampedeUp, check: str) -> list[str]:
    """What the doctor says of one check."""
    output = run("doctor", "--json", "--data", up.data).output
    checks = json.loads(output[output.index("[\n") : output.rindex("]") + 1])
    (found,) = [each for each in checks if each["check"] == check]
    return [finding["fault"] for finding in found["findings"]]


def test_fifteen_nights_and_a_change_of_version(tmp_path: Path) -> None:
    """Nothing is missing, nothing is restarted, and the doctor names each planted trouble."""
    today = datetime.now(UTC).date()
    days = [today - timedelta(NIGHTS - 1 - number) for number in range(NIGHTS)]
    with StampedeUp(tmp_path / "data", "--topics", FAMILIES) as up:
        survey = Survey(up.kafka)
        before = {name: up.processes(name)[0].pid for name in ("cutouts", "lightcurves")}
        slowest = 0.0
        for number, day in enumerate(days):
            (reader,) = up.processes("lightcurves")
            if number == EXPIRED:
                reader.send_signal(signal.SIGSTOP)
            begin = time.monotonic()
            if number != MISSING:
                survey.send(night(day), "ztf")
            survey.send("lsst-alerts-v11" if number >= RENAMED else "lsst-alerts-v10", "lsst")
            until(lambda: stored_in_cutouts(up, len(survey.sent)), READ_SECONDS)
            slowest = max(slowest, time.monotonic() - begin)
            if number == EXPIRED:
                survey.delete(night(day))
                reader.send_signal(signal.SIGCONT)
        print(f"the slowest night was stored {slowest:.1f} s after it was sent")
        make_topics(up.kafka, [night(today, 2)], 1)
        audit = up.wait_until_stored()
        count = len(survey.sent)
        assert stored_counts(audit) == {
            "cutouts": (count, count, 0),
            "detections": (count, count - EACH, 0),
        }
        lost = night(days[EXPIRED])
        assert f"{lost}: Kafka has deleted this topic" in audit.output
        assert "were deleted with it before they were stored in detections" in audit.output
        assert len(stored_alerts.stored_cutouts(up.url, survey.sent)) > 2 * count
        assert findings(up, "topics") == [
            f"nobody reads the topic {night(today, 2)}, which is like "
            "ztf_{YYYYMMDD}_programid1, lsst-alerts-v{n}"
        ]
        told = findings(up, "ledger")
        assert told
        assert all(lost in fault and "before they were stored" in fault for fault in told)
        assert {name: up.processes(name)[0].pid for name in before} == before
        up.stop().assert_succeeded()
