"""Each alert fires while its fault lasts, and ends when its runbook's mend is made.

The faults are real, in real servers, and so is Prometheus. Only the times in the rules are short,
and a few bounds low (`e2e.alert_rules.rules`). No alert is left out: none needs a cluster.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from e2e.alert_rules import data_faults, process_faults, setting_faults
from e2e.alert_rules.data_faults import requests
from e2e.alert_rules.process_faults import Fault, killed, paused
from e2e.alert_rules.rules import ALERTS
from e2e.alert_rules.watched import Watched

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

Faults = dict[tuple[str, ...], Fault]
"""Faults that are made at the same time, and the alerts that tell of each."""
STORE_IS_DOWN: Faults = {
    (
        "StampedeStoreDown",
        "StampedeReadFails",
        "StampedeFunctionDown",
        "StampedeFallsBehind",
        "StampedeNotCompacted",
        "StampedeNotReconciled",
        "StampedeNotScrubbed",
    ): requests("refused"),
}
EACH_ITS_OWN: Faults = {
    ("StampedeNoBucketNotifications", "StampedeSecondSiteBehind"): killed("broker"),
    ("StampedeClockWrong",): process_faults.wrong_clock,
    ("StampedeBucketNearQuota",): data_faults.small_quota,
    ("StampedeDamaged",): data_faults.damaged_pack,
    ("StampedeTopicUnread",): data_faults.next_version,
    ("StampedeTopicSilent",): data_faults.renamed_nights,
    ("StampedeTopicMadeAnew",): data_faults.night_made_anew,
    ("StampedeDeadLetters",): data_faults.undecodable_messages,
    ("StampedeEventStuck",): setting_faults.wrong_dead_letter_sink,
    ("StampedeNightsWait",): setting_faults.few_keys,
    ("StampedeCertificateExpires",): setting_faults.old_certificate,
    ("StampedeStoreSlow",): setting_faults.slow_requests,
    ("StampedeNotPublished",): setting_faults.no_catalogue,
    ("StampedeSendersRefused",): setting_faults.wrong_key,
    ("StampedeAlertsNeverCame",): data_faults.lost_detector,
}
STORE_IS_SLOW: Faults = {
    ("StampedeReadSlow",): data_faults.slow_store,
    ("StampedeSourceDown",): paused("source"),
    ("StampedeFunctionGone", "StampedeNotificationsOff"): paused("notifications"),
}
ONE_FUNCTION_IS_DOWN: Faults = {("StampedeTableLeftBehind",): data_faults.one_function_down}
MANY_ALERTS: Faults = {
    ("StampedeAlertsOld", "StampedeOverloaded"): data_faults.old_alerts,
    ("StampedeWorkersDie",): process_faults.killed_workers,
}
# In this order: passes of `reconcile` take longer when many alerts are stored.
GROUPS = {
    "down": STORE_IS_DOWN,
    "others": EACH_ITS_OWN,
    "slow": STORE_IS_SLOW,
    "one": ONE_FUNCTION_IS_DOWN,
    "many": MANY_ALERTS,
}


def names(faults: Faults) -> set[str]:
    """All alerts of some faults."""
    return {name for alerts in faults for name in alerts}


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    with Watched(tmp_path_factory.mktemp("watched")) as started:
        yield started
        started.up.stop().assert_succeeded()


@pytest.mark.parametrize("faults", GROUPS.values(), ids=GROUPS)
def test_alerts_fire_and_end(watched: Watched, faults: Faults) -> None:
    expected = names(faults)
    # As long as no fault has made one more process, no `publish` runs.
    watched.wait(lambda firing: not (expected - {"StampedeNotPublished"}) & firing)
    with watched.keeping():
        with ExitStack() as stack:
            for fault in faults.values():
                stack.enter_context(fault(watched))
            each_once(watched, "fires", expected, lambda firing: firing)
        each_once(watched, "has ended", expected, lambda firing: expected - firing)


def each_once(
    watched: Watched, what: str, expected: set[str], seen_of: Callable[[set[str]], set[str]]
) -> None:
    """Wait until each alert was seen once. On a busy machine an alert may flicker."""
    begin, seen = time.monotonic(), set[str]()

    def all_seen(firing: set[str]) -> bool:
        for name in sorted(expected & seen_of(firing) - seen):
            print(f"{time.monotonic() - begin:4.0f} s  {name} {what}", flush=True)
            seen.add(name)
        return seen == expected

    watched.wait(all_seen)


def test_every_alert_has_its_fault() -> None:
    assert set[str]().union(*map(names, GROUPS.values())) == ALERTS
