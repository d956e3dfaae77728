"""The first site fails while alerts arrive: the commands of the how-to, and nothing is lost."""

import os
import re
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from string import Template

import pytest

from e2e.commands import run, until
from e2e.places import ROOT
from e2e.stampede_up import STORED_SECONDS, StampedeUp, stored_counts
from stampede.config.settings import Settings
from stampede.store.open import open_objects
from stampede_local import installer
from stampede_local.ceph import LocalCeph
from stampede_local.kafka import LocalKafka
from stampede_local.ports import free_port
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.simulator import Simulator
from stampede_simulator.write import write
from tests.support.store import stored_alerts

pytestmark = pytest.mark.timeout(1200)
PAGE = (ROOT / "docs" / "how-to" / "fail-over.md").read_text()
SECOND_UP, SECOND_AUDIT, FIRST_UP, *PROVE = re.findall(r"^ *\$ stampede (.+)$", PAGE, re.MULTILINE)
COPIED_SECONDS = 60  # what reconcile and compact write meanwhile is copied by then
PART = 300  # alerts sent before the failure, during it, and while the first site is down


class Sites:
    """Two stores, a Kafka, and the words that the page's commands leave open."""

    def __init__(self, path: Path, first: LocalCeph, second: LocalCeph, kafka: LocalKafka) -> None:
        self.first, self.second, self.kafka = first, second, kafka
        self.words = {
            "FIRST_STORE": f"{first.endpoint}/alerts",
            "SECOND_STORE": f"{second.endpoint}/alerts",
            "KAFKA": kafka.bootstrap,
            "FIRST_DATA": str(path / "first"),
            "SECOND_DATA": str(path / "second"),
        }
        access, secret = first.keys
        replica_access, replica_secret = second.keys
        self.at_first = {
            "STAMPEDE_ACCESS_KEY": access,
            "STAMPEDE_SECRET_KEY": secret,
            "STAMPEDE_REPLICA_ACCESS_KEY": replica_access,
            "STAMPEDE_REPLICA_SECRET_KEY": replica_secret,
        }
        self.at_second = {
            "STAMPEDE_ACCESS_KEY": replica_access,
            "STAMPEDE_SECRET_KEY": replica_secret,
            "STAMPEDE_GROUP": "second",
        }

    def command(self, line: str) -> list[str]:
        """A command of the page with its addresses."""
        return Template(line).substitute(self.words).split()

    def up(self, line: str, env: dict[str, str]) -> StampedeUp:
        """The page's `stampede up`, in the background."""
        words = self.command(line)
        at = words.index("--data")
        return StampedeUp(Path(words[at + 1]), *words[1:at], *words[at + 2 :], **env)

    def not_copied(self) -> set[str]:
        """Keys of packs that only the first site has."""
        first, second = (packs(each) for each in (self.first, self.second))
        return first - second


def packs(ceph: LocalCeph) -> set[str]:
    access, secret = ceph.keys
    settings = Settings(store=f"{ceph.endpoint}/alerts", access_key=access, secret_key=secret)
    return {each.key for each in open_objects(settings).list("packs/")}


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    for packages in (installer.CEPH, installer.KAFKA):
        installer.ensure(packages, install=os.geteuid() == 0)
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(LocalCeph(tmp_path / name, free_port(2), gigabytes=2))
            for name in ("ceph", "second-ceph")
        )
        kafka = stack.enter_context(LocalKafka(tmp_path / "kafka", free_port(2)))
        yield Sites(tmp_path, first, second, kafka)


def test_the_first_site_fails_and_comes_back(sites: Sites) -> None:
    simulator = Simulator(67)
    coming = simulator.alerts(3 * PART)

    def send() -> list[SimulatedAlert]:
        alerts = list(islice(coming, PART))
        write(iter(alerts), f"kafka://{sites.kafka.bootstrap}")
        return alerts

    with sites.up(FIRST_UP, sites.at_first) as first:
        sent = send()
        first.wait_until_stored()
        run("reconcile", "--all", "--data", first.data).assert_succeeded()
        for each in first.processes("replicate"):
            each.suspend()  # otherwise it may have copied all before the site fails
        sent += send()
        until(lambda: stored_counts(first.audit())["cutouts"][1] > PART, STORED_SECONDS)
        first.kill()
    assert sites.not_copied()
    sites.first.stop()

    with sites.up(SECOND_UP, sites.at_second) as second:
        sent += send()
        second.wait_until_stored()
        assert run(*sites.command(SECOND_AUDIT)).status == 0
        assert_all_are_read(second.url, simulator, sent)
        second.stop().assert_succeeded()

    with sites.first, sites.up(FIRST_UP, sites.at_first) as first:
        first.wait_until_stored()
        reconcile, audit, audit_replica = (sites.command(line) for line in PROVE)
        run(*reconcile).assert_succeeded()
        run(*audit).assert_succeeded()
        until(lambda: run(*audit_replica).status == 0, COPIED_SECONDS, 1)
        assert_all_are_read(first.url, simulator, sent)
        first.stop().assert_succeeded()


def assert_all_are_read(url: str, simulator: Simulator, sent: list[SimulatedAlert]) -> None:
    """Compare the bytes of every cutout, and every point of every light curve."""
    stored = stored_alerts.stored_cutouts(url, [alert.alert_id for alert in sent])
    assert not stored_alerts.differences(stored_alerts.cutouts_of(sent), stored)
    assert stored_alerts.assert_light_curves(url, simulator)
