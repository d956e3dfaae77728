"""The step of a pass that compares the histories of the last nights with the alerts that came.

It looks at nights that ended a day ago, since alerts may be delayed as long. When another night has
ended it looks at all of them again: histories of later alerts know more. The results are a small
object (`histories_summary`).
"""

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from datetime import datetime

from stampede.config.settings import Settings
from stampede.errors import Damaged
from stampede.handlers.histories.audit import HistoriesAudit
from stampede.handlers.histories.causes import Cause
from stampede.handlers.histories.missing import Group
from stampede.lookup import histories_summary
from stampede.lookup.histories_summary import ComparedNight, HistoriesSummary, Lacking
from stampede.runtime.clock import mjd
from stampede.store.objects.object_store import Objects
from stampede.store.packs.night_keys import packed_nights
from stampede.store.programmes.rights import Rights
from stampede.store.runs.schema import CUTOUT_PACKS, PACKET_PACKS
from stampede.telemetry import histories_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

TIMES = 2
"""How often the same nights are looked at, on different days."""
WAIT = 1.0
"""Days from the end of a night to its first look."""
SPAN = 10
"""Nights that are so long before the last are left out, unless more than half as many are wanted:
all nights between would be read too. Merged packs may show no night of a month but its last."""
RETRY = 0.25
"""Days until nights are looked at again after a look that did not come to its end."""
MOST_HELD = 2_000_000
"""Rows of missing detections that may be in memory, repeats included. With their causes and groups
the process takes 1.4 GB; with twice as many it took 2.6 GB, more than the chart's pod may have."""
MOST_ALERTS, MOST_MISSING = 2_000_000, 500_000
"""Of a window: 24 bytes for an alert. Several nights with more are split."""
MOST_NAMED, MOST_IDS = 100, 3
"""Detectors that are named of a night and survey, and ids of each."""


class GaveUp(Exception):
    """A look takes too much time or memory for a pass."""


def compare_histories(
    objects: Objects,
    settings: Settings,
    repair: bool = True,
    everything: bool = False,
    end: float = math.inf,
) -> HistoriesSummary | None:
    """Look at the last nights if it is time; return what is known of them, None if nothing is.

    Without `repair` nothing is looked at.

    Parameters
    ----------
    everything
        Look at them whenever that was done last.
    end
        When to give up, by `time.monotonic`.

    Raises
    ------
    Damaged
        A table cannot be read, so nothing new can be said. What was known is kept.
    StoreDown
    """
    if not repair or not settings.histories_nights:
        return None
    before, now = histories_summary.load(objects), objects.now()
    nights = _last_nights(objects, settings.histories_nights, mjd(now))
    if not nights or not (everything or _is_due(before, nights, now)):
        _measure(before)
        return before
    begun = replace(before or HistoriesSummary(now, nights), at=now, looked=nights)
    times = before.times if before and before.looked == nights else 0
    # A pass that is killed here is not to be repeated every ten minutes.
    begun = _saved(objects, replace(begun, times=times, why="the pass did not come to its end"))
    try:
        found = _compared(objects, settings, nights, end)
    except GaveUp as error:
        log.error("histories not compared", nights=nights, why=str(error))
        return _saved(objects, replace(begun, why=str(error)))
    except Damaged as error:
        _saved(objects, replace(begun, why=error.message))
        raise
    return _saved(objects, replace(begun, times=times + 1, why="", made=now, nights=found))


def _last_nights(objects: Objects, most: int, now: float) -> list[int]:
    """The last nights with packs that ended a day ago, ascending."""
    nights = {n for spec in (CUTOUT_PACKS, PACKET_PACKS) for n in packed_nights(objects, spec)}
    ended = sorted(night for night in nights if night + 1 + WAIT <= now)
    return [night for night in ended[-most:] if night > ended[-1] - max(SPAN, 2 * most)]


def _is_due(before: HistoriesSummary | None, nights: list[int], now: datetime) -> bool:
    if not before:
        return True
    if before.why:
        return mjd(now) - mjd(before.at) >= RETRY
    another_day = math.floor(mjd(now)) > math.floor(mjd(before.at))
    return another_day and (before.looked != nights or before.times < TIMES)


def _compared(
    objects: Objects, settings: Settings, nights: list[int], end: float
) -> list[ComparedNight]:
    """What histories know of these nights. Raises `GaveUp`, `Damaged`, `StoreDown`."""

    def watch(held: int) -> None:
        if held > MOST_HELD:
            raise GaveUp(
                f"more than {MOST_HELD:,} rows of detections have no alert: "
                "`stampede audit --histories` has no such limit"
            )
        if time.monotonic() > end:
            raise GaveUp(
                "it takes too long for a pass: `stampede reconcile` has no limit, "
                "and a larger `reconcile_seconds` or fewer `histories_nights` help"
            )

    with closing(
        HistoriesAudit(objects, Rights.of(settings), MOST_ALERTS, MOST_MISSING, watch)
    ) as audit:
        found: dict[tuple[int, str], _Found] = {}
        for group in audit.groups(nights[0], nights[-1] + 1):
            found.setdefault((group.night, group.survey), _Found()).add(group)
        for survey, night in audit.came:
            found.setdefault((night, survey), _Found())
        return [
            found[night, survey].summary(survey, night, audit.came[survey, night])
            for night, survey in sorted(found)
        ]


class _Found:
    """What never came of one survey and night."""

    def __init__(self) -> None:
        self._missing = Counter[str]()
        self._much = 0
        self._worst: list[Lacking] = []

    def add(self, group: Group) -> None:
        self._missing[group.cause.value] += group.missing
        if group.cause is not Cause.UNEXPLAINED:
            return
        one = Lacking(group.visit, group.detector, group.missing, group.came, group.ids[:MOST_IDS])
        self._much += one.is_much
        self._worst.append(one)
        if len(self._worst) > 10 * MOST_NAMED:
            self._worst = _worst(self._worst)

    def summary(self, survey: str, night: int, came: int) -> ComparedNight:
        missing: Mapping[str, int] = dict(self._missing)
        return ComparedNight(survey, night, came, missing, self._much, _worst(self._worst))


def _worst(some: Iterable[Lacking]) -> list[Lacking]:
    return sorted(some, key=lambda one: one.rank)[:MOST_NAMED]


def _saved(objects: Objects, summary: HistoriesSummary) -> HistoriesSummary:
    histories_summary.save(objects, summary)
    _measure(summary)
    return summary


def _measure(summary: HistoriesSummary | None) -> None:
    """Set the metrics. Each pass does: it may run in a new pod."""
    unexplained, lacking = Counter[str](), Counter[str]()
    for night in summary.nights if summary else ():
        unexplained[night.survey] += night.missing.get(Cause.UNEXPLAINED, 0)
        lacking[night.survey] += night.much
    for gauge, counts in (
        (histories_metrics.UNEXPLAINED, unexplained),
        (histories_metrics.LACKING, lacking),
    ):
        gauge.clear()
        for survey, count in counts.items():
            gauge.labels(survey).set(count)
    waiting = summary.looked if summary and summary.why else ()
    histories_metrics.WAITING.set(len(waiting))
