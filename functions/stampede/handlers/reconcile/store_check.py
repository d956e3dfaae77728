"""The step of a pass that checks each site once an hour: how long its requests take.

The first site keeps the results (`store_checks`). Each pass sets the metrics: it may run in a new
pod.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

from prometheus_client import Gauge

from stampede.config.settings import Settings
from stampede.store import store_checks
from stampede.store.ceph.quotas import Quota, usage
from stampede.store.objects.object_store import Objects
from stampede.store.open import first_site, second_site
from stampede.store.step_times import WRITTEN, measure_steps
from stampede.store.store_checks import SITES, Steps, StoreCheck, StoreChecks
from stampede.telemetry import check_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

EARLY = 60.0
"""Seconds that a check may come early: a timer's events do not come to the second."""

ROOM = 10
"""A check needs room for this many times what it writes: the last room is for alerts."""


def check_stores(sites: Sequence[Objects], settings: Settings, repair: bool = True) -> None:
    """Check each site for which it is time, if its quotas leave room; without `repair` none.

    Raises `StoreDown`, `Damaged`, if a site does not return what was written.
    """
    seconds = settings.store_check_seconds
    if not repair or not seconds:
        return
    home, interval = sites[0], timedelta(seconds=seconds - min(EARLY, seconds / 2))
    for name, site in zip(SITES, sites, strict=False):
        checks, now = store_checks.load(home, name), home.now()
        if checks.last is None or now - checks.last.at >= interval:
            _measure(name, checks, now)  # a check that fails must not take the last values away
            if quota := _small_quota(name, settings):
                _skip(name, quota)
                continue
            check = StoreCheck(now, measure_steps(site))
            checks = store_checks.add(home, name, checks, check)
            log.info("store checked", site=name, p99={s: t.p99 for s, t in check.steps.items()})
        _measure(name, checks, now)


def _small_quota(name: str, settings: Settings) -> Quota | None:
    """A quota of a site that leaves too little room for a check. Raises `StoreDown`."""
    address = first_site(settings) if name == SITES[0] else second_site(settings)
    quotas = usage(address).quotas
    return next((each for each in quotas if each.left < ROOM * WRITTEN[each.unit]), None)


def _skip(name: str, quota: Quota) -> None:
    """Say so, and take the last values away: the alert is not to go on for an old check."""
    log.warning(
        "store not checked",
        site=name,
        why=f"the quota of its {quota.scope} leaves too little room",
        unit=quota.unit,
        left=quota.left,
        needed=ROOM * WRITTEN[quota.unit],
    )
    for gauge in (check_metrics.STORE_CHECK, check_metrics.STORE_CHECK_USUAL):
        gauge.remove_by_labels({"site": name})


def _measure(name: str, checks: StoreChecks, now: datetime) -> None:
    if checks.last:
        _set(check_metrics.STORE_CHECK, name, checks.last.steps)
        _set(check_metrics.STORE_CHECK_USUAL, name, checks.usual(now))


def _set(gauge: Gauge, name: str, steps: Steps) -> None:
    for step, times in steps.items():
        gauge.labels(name, step, "0.5").set(times.p50)
        gauge.labels(name, step, "0.99").set(times.p99)
