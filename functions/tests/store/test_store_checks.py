"""The history of the checks of a store: what is kept, and what is usual."""

from datetime import UTC, datetime, timedelta

from stampede.store import store_checks
from stampede.store.objects.memory import MemoryObjects
from stampede.store.step_times import StepTimes
from stampede.store.store_checks import ENOUGH, KEPT, StoreCheck, StoreChecks

HOUR = timedelta(hours=1)
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)


def test_what_is_usual_is_the_median_of_seven_days_before() -> None:
    def check(hours: float, p50: float) -> StoreCheck:
        return StoreCheck(NOW - hours * HOUR, {"write": StepTimes(50, p50, 2 * p50)})

    week = [check(hours, 0.01) for hours in range(ENOUGH, 0, -1)]
    before = [check(hours, 9) for hours in range(500, 169, -1)]
    usual = StoreChecks((*before, *week, check(0, 5))).usual(NOW)
    assert usual == {"write": StepTimes(ENOUGH, 0.01, 0.02)}
    assert not StoreChecks((*before, *week[1:], check(0, 5))).usual(NOW), "not enough yet"


def test_a_month_is_kept() -> None:
    home, first = MemoryObjects(), StoreCheck(NOW, {})
    last = StoreCheck(NOW + HOUR, {"read": StepTimes(1, 1, 1)})
    added = store_checks.add(home, "store", StoreChecks(KEPT * (first,)), last)
    assert added == store_checks.load(home, "store")
    assert (len(added.checks), added.last) == (KEPT, last)


def test_each_site_has_its_own_history() -> None:
    home, check = MemoryObjects(), StoreCheck(NOW, {"read": StepTimes(1, 1, 1)})
    assert not list(store_checks.load_all(home))
    store_checks.add(home, "replica", StoreChecks(), check)
    assert list(store_checks.load_all(home)) == [("replica", StoreChecks((check,)))]
