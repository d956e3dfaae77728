"""The history of the checks of a store: a saved state at the first site, for each site.

A check is what `step_times` measured, and when.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from stampede.store.integrity import saved_state
from stampede.store.integrity.reconcile_state import PREFIX
from stampede.store.objects.object_store import Objects
from stampede.store.step_times import StepTimes

FOLDER = f"{PREFIX}check-"
SITES = ("store", "replica")
KEPT = 30 * 24
"""Checks that are kept of each site: a month of hours, 300 KB."""
SPAN = timedelta(days=7)
"""What is usual is the median of so long before now."""
ENOUGH = 24
"""Checks in that time below which nothing is usual yet."""

Steps = Mapping[str, StepTimes]
"""The times of each step, by its name."""


@dataclass(frozen=True)
class StoreCheck:
    """One check: when it began, by the clock of the first site, and the times of each step."""

    at: datetime
    steps: Steps


@dataclass(frozen=True)
class StoreChecks:
    """The last checks of a site, in order of time."""

    checks: tuple[StoreCheck, ...] = ()

    @property
    def last(self) -> StoreCheck | None:
        """The last check."""
        return self.checks[-1] if self.checks else None

    def usual(self, now: datetime) -> Steps:
        """The medians of p50 and of p99 of each step in the time before the last check.

        A step without enough checks is left out; `count` is the number of checks.
        """
        some = [check.steps for check in self.checks[:-1] if check.at >= now - SPAN]
        names = {name for steps in some for name in steps}
        found = {name: [steps[name] for steps in some if name in steps] for name in sorted(names)}
        return {name: _medians(times) for name, times in found.items() if len(times) >= ENOUGH}


def _medians(times: Iterable[StepTimes]) -> StepTimes:
    every = list(times)
    return StepTimes(
        len(every), median(each.p50 for each in every), median(each.p99 for each in every)
    )


def load(home: Objects, site: str) -> StoreChecks:
    """The checks of a site that are known at the first one. Raises `StoreDown`."""
    return saved_state.load(home, f"{FOLDER}{site}/", StoreChecks) or StoreChecks()


def add(home: Objects, site: str, checks: StoreChecks, check: StoreCheck) -> StoreChecks:
    """Save the checks of a site and one more, without the oldest if there are too many.

    Raises `StoreDown`.
    """
    checks = StoreChecks((*checks.checks, check)[-KEPT:])
    saved_state.save(home, f"{FOLDER}{site}/", checks)
    return checks


def load_all(home: Objects) -> Iterator[tuple[str, StoreChecks]]:
    """The sites that were checked, and their checks. Raises `StoreDown`."""
    for site in SITES:
        if (checks := load(home, site)).checks:
            yield site, checks
