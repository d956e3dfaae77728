"""The step of `reconcile` that checks how fast each site is, and what is usual."""

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import structlog
from prometheus_client import REGISTRY, Gauge

from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.reconcile.store_check import ROOM, check_stores
from stampede.handlers.scrub.deep_audit import deep_audit
from stampede.store import store_checks
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects, open_replica
from stampede.store.step_times import WRITTEN, StepTimes
from stampede.store.store_checks import ENOUGH, StoreCheck, StoreChecks
from stampede.telemetry import check_metrics
from tests.support.store.faulty_s3 import answer, faulty_s3
from tests.support.store.watched_objects import Forwarding, Watched

HOUR = timedelta(hours=1)
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
SETTINGS = Settings()


class At(Forwarding):
    """A store whose clock shows what it is told, and whose GETs take a while."""

    def __init__(self, now: datetime, seconds: float = 0) -> None:
        super().__init__(MemoryObjects())
        self.time, self.seconds = now, seconds

    def now(self) -> datetime:
        return self.time

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if key.startswith("probes/"):
            time.sleep(self.seconds)
        return super().get(key, start, length)


def times_of(home: Objects, site: str = "store") -> list[datetime]:
    return [check.at for check in store_checks.load(home, site).checks]


def value(gauge: Gauge, site: str, step: str, quantile: str) -> float:
    return float(gauge.labels(site, step, quantile)._value.get())


def test_each_site_is_checked_once_an_hour_and_the_first_keeps_the_history() -> None:
    home, second = At(NOW), At(NOW)
    for minutes in range(0, 130, 10):  # the timer's events come a moment earlier or later
        home.time = NOW + timedelta(minutes=minutes, seconds=-7 if minutes else 0)
        check_stores([home, second], SETTINGS)
    assert times_of(home) == [NOW, NOW + HOUR - 7 * timedelta(seconds=1), home.time]
    assert times_of(home) == times_of(home, "replica")
    assert not list(second.list(""))
    assert {info.key.rpartition("/")[0] for info in home.list("")} == {
        "reconcile/check-store",
        "reconcile/check-replica",
    }


def test_a_slow_site_shows_beside_what_is_usual() -> None:
    home, steps = At(NOW), {"read": StepTimes(50, 0.001, 0.002)}
    *day, last = [StoreCheck(NOW - hours * HOUR, steps) for hours in range(ENOUGH, 0, -1)]
    store_checks.add(home, "store", StoreChecks(tuple(day)), last)
    home.seconds = 0.01
    check_stores([home], SETTINGS)
    assert value(check_metrics.STORE_CHECK, "store", "read", "0.5") >= 0.01
    assert value(check_metrics.STORE_CHECK_USUAL, "store", "read", "0.5") == 0.001
    assert value(check_metrics.STORE_CHECK_USUAL, "store", "read", "0.99") == 0.002


def test_a_check_reads_the_history_once_and_writes_it_once() -> None:
    home = Watched(MemoryObjects())
    check_stores([home], SETTINGS)
    home.calls.clear()
    check_stores([home], Settings(store_check_seconds=1e-9))
    history = [call for call in home.calls if call[1].startswith(store_checks.FOLDER)]
    assert [call[0] for call in history if call[0] != "list"] == ["get", "put", "delete"]
    assert len(times_of(home)) == 2


SIZE, OBJECTS = (ROOM * WRITTEN[unit] for unit in ("size", "objects"))


@pytest.mark.parametrize(
    ("quota", "checked"),
    [
        ({"Size": 1000 + SIZE, "Objects": 7 + OBJECTS}, True),
        ({"Size": 1000 + SIZE - 1, "Objects": 7 + OBJECTS}, False),
        ({"Size": 1000 + SIZE, "Objects": 7 + OBJECTS - 1}, False),
        ({"Size": 999, "Objects": -1}, False),  # more is stored than may be
        ({"Size": -1, "Objects": -1}, True),  # no limit
        ({}, True),  # no Ceph
    ],
)
def test_no_site_is_checked_whose_quota_leaves_less_than_ten_times_what_it_writes(
    quota: dict[str, int], checked: bool
) -> None:
    limits = [f"X-RGW-Quota-Bucket-{unit}: {limit}" for unit, limit in quota.items()]
    header = ("X-RGW-Bytes-Used: 1000", "X-RGW-Object-Count: 7", *limits)
    home, second = At(NOW), At(NOW)
    with faulty_s3(answer("200 OK", b"", *header)) as server:
        url = f"http://{server.host}/bucket"
        settings = Settings(replica=url, replica_access_key="key", replica_secret_key="s")
        with structlog.testing.capture_logs() as lines:
            check_stores([home, second], settings)
            check_stores([home, second], settings)
        assert len(server.requests) == (1 if checked else 2), "only when a check is due"
    assert times_of(home) == [NOW], "the other site is checked"
    assert times_of(home, "replica") == ([NOW] if checked else [])
    assert not list(second.list(""))
    skipped = [line for line in lines if line["event"] == "store not checked"]
    assert [line["site"] for line in skipped] == ([] if checked else ["replica", "replica"])


def test_a_site_that_is_not_checked_has_no_values() -> None:
    """Else the alert went on for an old check."""
    home, full = At(NOW), "X-RGW-Quota-Bucket-Size: 1000"
    check_stores([home], SETTINGS)
    labels = {"site": "store", "step": "read", "quantile": "0.99"}
    assert REGISTRY.get_sample_value("stampede_store_check_seconds", labels) is not None
    home.time += HOUR
    with faulty_s3(answer("200 OK", b"", "X-RGW-Bytes-Used: 1000", full)) as server:
        url = f"http://{server.host}/bucket"
        check_stores([home], Settings(store=url, access_key="key", secret_key="s"))
    assert REGISTRY.get_sample_value("stampede_store_check_seconds", labels) is None


@pytest.mark.parametrize(("repair", "seconds"), [(False, 3600), (True, 0)])
def test_a_dry_run_writes_nothing_and_zero_means_never(repair: bool, seconds: float) -> None:
    home = At(NOW)
    check_stores([home], Settings(store_check_seconds=seconds), repair)
    assert not list(home.list(""))


def test_a_check_that_fails_is_no_check() -> None:
    class Down(At):
        def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
            raise StoreDown(key)

    home, second = At(NOW), Down(NOW)
    with pytest.raises(StoreDown):
        check_stores([home, second], SETTINGS)
    assert (times_of(home), times_of(home, "replica")) == ([NOW], [])


def test_the_pass_of_reconcile_checks_both_sites_and_an_audit_finds_them_whole(
    tmp_path: Path,
) -> None:
    settings = Settings(store=f"file://{tmp_path}/1", replica=f"file://{tmp_path}/2")
    Reconciler(settings).run()
    Reconciler(settings).run()
    sites = open_objects(settings), open_replica(settings)
    assert [len(times_of(sites[0], site)) for site in store_checks.SITES] == [1, 1]
    assert not any(info.key.startswith("probes/timed/") for s in sites for info in s.list(""))
    assert not list(sites[1].list("reconcile/"))
    result = deep_audit(settings, ["store", "replica"])
    assert (result.faults, result.in_flight) == ([], 0)
    assert {each.foreign for each in result.totals.values()} == {0}
