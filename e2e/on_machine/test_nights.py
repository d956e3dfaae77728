"""Nights of ZTF and a change of Rubin's version, in one run of `stampede up`."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import islice
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from e2e.alert_rules.rules import NAMESPACE, rules
from e2e.commands import run, until
from e2e.prometheus import Prometheus, prometheus, targets
from e2e.stampede_up import StampedeUp, stored_counts
from stampede.cli.running import running
from stampede_local.kafka import make_topics
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.simulator import Simulator
from tests.support.store import stored_alerts

SEED = 11
EACH = 12  # alerts of each survey in a night
FAMILIES = "ztf_{YYYYMMDD:20}_programid1,lsst-alerts-v{n}"
# So few are in flight that a function which stands still soon holds all of them.
FEW = {"STAMPEDE_IN_FLIGHT": "8", "STAMPEDE_DETACH_SECONDS": "3"}
STARTED_ONCE = ("cutouts", "lightcurves", "source")
READ_SECONDS = 120
FIRING_SECONDS = 120  # the rules wait for seconds, but the machine may be busy
pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class Plan:
    """What happens in which night, counted from 0.

    Parameters
    ----------
    nights
        How many.
    missing
        Of these nights there is no topic, though programme 2 has one.
    expired
        Of this one `lightcurves` lacks some when Kafka deletes it.
    renamed
        Since then Rubin has another version.
    """

    nights: int
    missing: tuple[int, ...]
    expired: int
    renamed: int


class Survey:
    """Sends the alerts of the simulator, some at a time, to topics that it makes."""

    def __init__(self, kafka: str, nights: int) -> None:
        self._kafka = kafka
        # Otherwise it makes an expired topic anew when it asks for its partitions again.
        options = {"bootstrap.servers": kafka, "allow.auto.create.topics": False}
        self._producer = Producer(options)
        alerts = [*Simulator(SEED).alerts(4 * nights * EACH)]
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


@contextmanager
def watched(up: StampedeUp, directory: Path) -> Iterator[Prometheus]:
    """A Prometheus that evaluates the chart's alert rules, with short times."""
    system = running(up.data)
    assert system is not None
    file = directory / "rules.yml"
    file.write_text(yaml.safe_dump(rules()))
    configuration = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(file)],
        "scrape_configs": [
            {"job_name": "up", "static_configs": targets(dict(system.urls), NAMESPACE)}
        ],
    }
    with prometheus(directory / "prometheus", configuration) as evaluating:
        until(lambda: evaluating.query("stampede_source_ready == 1"), READ_SECONDS)
        yield evaluating


def started(up: StampedeUp) -> list[int]:
    """The ids of the processes that are never to be started again."""
    return sorted(each.pid for name in STARTED_ONCE for each in up.processes(name))


def nobody_reads(*topics: str) -> list[str]:
    """What the doctor says of topics of programme 2."""
    like = "which is like ztf_{YYYYMMDD}_programid1, lsst-alerts-v{n}"
    return [f"nobody reads the topic {topic}, {like}" for topic in topics]


@pytest.mark.nightly
@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(7, (2, 3), 4, 5), id="seven"),
        pytest.param(Plan(15, (4, 5), 7, 10), id="fifteen"),
    ],
)
def test_nights_and_a_change_of_version(tmp_path: Path, plan: Plan) -> None:
    """Nothing is missing or restarted. The doctor and an alert name each planted trouble."""
    today = datetime.now(UTC).date()
    days = [today - timedelta(plan.nights - 1 - number) for number in range(plan.nights)]
    others = [night(days[number], 2) for number in plan.missing]
    with (
        StampedeUp(tmp_path / "data", "--sources", "--topics", FAMILIES, **FEW) as up,
        watched(up, tmp_path) as alerts,
    ):

        def fires(alert: str, wanted: bool = True) -> None:
            until(lambda: (alert in alerts.firing()) == wanted, FIRING_SECONDS)

        survey = Survey(up.kafka, plan.nights)
        before = started(up)
        (function,) = up.processes("lightcurves")
        slowest = 0.0
        for number, day in enumerate(days):
            if number == plan.expired:
                fires("StampedeTableLeftBehind", False)
                function.send_signal(signal.SIGSTOP)
            begin = time.monotonic()
            if number not in plan.missing:
                survey.send(night(day), "ztf")
            else:
                make_topics(up.kafka, [night(day, 2)], 1)
            survey.send("lsst-alerts-v11" if number >= plan.renamed else "lsst-alerts-v10", "lsst")
            until(lambda: stored_in_cutouts(up, len(survey.sent)), READ_SECONDS)
            slowest = max(slowest, time.monotonic() - begin)
            if number == plan.expired:
                fires("StampedeTableLeftBehind")
                survey.delete(night(day))
                function.send_signal(signal.SIGCONT)
                fires("StampedeTableLeftBehind", False)
            if number == plan.missing[-1]:
                fires("StampedeTopicUnread")
                fires("StampedeTopicSilent")
                assert findings(up, "topics") == [
                    *nobody_reads(*others),
                    f"ztf_{{YYYYMMDD}}_programid1 has had no topic for some nights, "
                    f"and there is {others[-1]}",
                ]
        print(f"the slowest night was stored {slowest:.1f} s after it was sent")
        audit = up.wait_until_stored()
        count = len(survey.sent)
        counts = stored_counts(audit)
        assert counts["cutouts"] == (count, count, 0)
        assert count - EACH <= counts["detections"][1] < count
        lost = night(days[plan.expired])
        assert f"{lost}: Kafka has deleted this topic" in audit.output
        assert "were deleted with it before they were stored in detections" in audit.output
        assert len(stored_alerts.stored_cutouts(up.url, survey.sent)) > 2 * count
        fires("StampedeTopicSilent", False)
        fires("StampedeTopicUnread")
        assert findings(up, "topics") == nobody_reads(*others)
        told = findings(up, "ledger")
        assert told
        assert all(lost in fault and "before they were stored" in fault for fault in told)
        assert started(up) == before
        up.stop().assert_succeeded()
