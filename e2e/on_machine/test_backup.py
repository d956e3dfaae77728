"""All is lost but the bucket, Kafka and what the page says to save: a drill, counted and timed."""

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from e2e.commands import run, until
from e2e.places import ROOT
from e2e.stampede_up import STORED_SECONDS, StampedeUp, stored_counts
from stampede_local import installer
from stampede_local.ceph import LocalCeph
from stampede_local.kafka import LocalKafka
from stampede_local.ports import free_port
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.simulator import Simulator
from stampede_simulator.write import write
from tests.support.store import stored_alerts

pytestmark = pytest.mark.timeout(1200)
PAGE = (ROOT / "docs" / "how-to" / "back-up.md").read_text()
REPORT = """\
sent until all was lost, and while nothing ran   {sent} and {waiting} alerts
of these stored, when all was lost               {stored}
lost in the end                                  {lost}
read and all functions are ready after           {ready:.0f} s
all alerts are stored and readable after         {caught_up:.0f} s
"""
BEFORE, DURING, WHILE_DOWN = 1000, 1000, 1000
PART = 50  # alerts between two looks at whether they are stored


class Saved:
    """What the page says to save: addresses, and the keys of the store."""

    def __init__(self, ceph: LocalCeph, kafka: LocalKafka) -> None:
        self.options = ("--store", f"{ceph.endpoint}/alerts", "--kafka", kafka.bootstrap)
        access, secret = ceph.keys
        self.env = {"STAMPEDE_ACCESS_KEY": access, "STAMPEDE_SECRET_KEY": secret}
        self.kafka = kafka.bootstrap
        self._settings: dict[str, Any] = {
            "STAMPEDE_STORE": self.options[1],
            "STAMPEDE_KAFKA": self.kafka,
        }

    def up(self, data: Path) -> StampedeUp:
        return StampedeUp(data, *self.options, **self.env)

    def stored(self) -> int:
        """How many alerts the bucket has, while nothing runs."""
        return stored_counts(run("audit", **self._settings | self.env))["cutouts"][1]


@pytest.fixture
def saved(tmp_path: Path) -> Iterator[Saved]:
    for packages in (installer.CEPH, installer.KAFKA):
        installer.ensure(packages, install=os.geteuid() == 0)
    with ExitStack() as stack:
        ceph = stack.enter_context(LocalCeph(tmp_path / "ceph", free_port(2), gigabytes=2))
        kafka = stack.enter_context(LocalKafka(tmp_path / "kafka", free_port(2)))
        yield Saved(ceph, kafka)


def test_all_but_bucket_and_kafka_is_lost(
    saved: Saved, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    simulator = Simulator(40)
    coming = simulator.alerts(BEFORE + DURING + WHILE_DOWN)
    sent: list[SimulatedAlert] = []

    def send(count: int) -> None:
        for _ in range(0, count, PART):
            alerts = list(islice(coming, PART))
            write(iter(alerts), f"kafka://{saved.kafka}")
            sent.extend(alerts)

    with saved.up(tmp_path / "first") as first:
        send(BEFORE)
        first.wait_until_stored()
        sending = Thread(target=send, args=(DURING,))
        sending.start()
        until(lambda: len(sent) >= BEFORE + DURING // 2, STORED_SECONDS, 0.01)
        lose(first)
    sending.join()
    stored = saved.stored()
    assert BEFORE <= stored < BEFORE + DURING  # it was lost while alerts were under way
    send(WHILE_DOWN)
    begun = time.monotonic()
    with saved.up(tmp_path / "second") as second:
        ready = time.monotonic() - begun
        second.wait_until_stored()
        caught_up = time.monotonic() - begun
        found = stored_alerts.stored_cutouts(second.url, [each.alert_id for each in sent])
        lost = stored_alerts.differences(stored_alerts.cutouts_of(sent), found)
        assert stored_alerts.assert_light_curves(second.url, simulator)
        second.stop().assert_succeeded()
    report = REPORT.format(
        sent=BEFORE + DURING, waiting=WHILE_DOWN, stored=stored, lost=len(lost),
        ready=ready, caught_up=caught_up,
    )  # fmt: skip
    with capsys.disabled():
        print(f"\n{report}")
    assert not lost


def lose(up: StampedeUp) -> None:
    """Kill all processes at once, and delete all that they kept on this machine."""
    up.kill()
    shutil.rmtree(up.data)


def test_the_page_has_what_the_drill_prints() -> None:
    (printed,) = re.findall(r"^```text\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    numbers = re.compile(r"\d+")
    shape = REPORT.format(sent=0, waiting=0, stored=0, lost=0, ready=0, caught_up=0)
    assert numbers.sub("0", printed) == numbers.sub("0", shape)
