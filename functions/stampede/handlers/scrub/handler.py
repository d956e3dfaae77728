"""scrub: reads the whole store again and again, a bounded time at each event of a timer.

A pass goes on where the last one ended (`store.integrity.scrub_state`). What it finds damaged or
lost is restored from the other site at once, if there is one, and wrong thumbnails are drawn again.
What is left is looked at again in each pass. If the store has grown so far that the round would end
too late, its passes take twice as long.
"""

import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.handlers.scrub.deep_audit import repair
from stampede.handlers.scrub.delete_orphans import delete_orphans
from stampede.handlers.scrub.scrubber import Fault, Scrub, Site, Totals
from stampede.store.integrity import scrub_state
from stampede.store.integrity.scrub_state import MOST_LEFT, ScrubState
from stampede.store.integrity.verification import table_of
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects, open_replica
from stampede.telemetry import scrub_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

LATE = 2
"""So many times as long reads a pass of a round that would end too late."""


def scrub_sites(settings: Settings) -> None:
    """Make one pass over each site. Raises `StoreDown`, `SetupError`.

    If what was found cannot be repaired, the pass counts nevertheless; then its error is raised.
    """
    home = open_objects(settings)
    sites = {"store": home}
    if settings.replica:
        sites["replica"] = open_replica(settings)
    try:
        for name, objects in sites.items():
            # `reconcile` counts what was not copied yet
            site = Site.of(settings, name, objects, behind=name != "store")
            _pass(settings, home, site, settings.scrub_seconds / len(sites))
    except StampedeError as error:
        scrub_metrics.SCRUB_PASSES.labels(error.name).inc()
        raise
    scrub_metrics.SCRUB_PASSES.labels("done").inc()


class _Seen(NamedTuple):
    """What a pass read and found.

    `last` is the key of the last object that it read, empty at the end of the site; `ended` is
    whether the round ended with it; `unseen` is as of `ScrubState`; `orphans` are keys.
    """

    totals: Totals
    last: str
    ended: bool
    faults: list[Fault]
    unseen: set[str]
    orphans: set[str]


def _pass(settings: Settings, home: Objects, site: Site, seconds: float) -> None:
    """Make one pass over a site, and save at `home` how far it came.

    Raises the error of the last step that failed, after all of them.
    """
    now, interval = home.now(), timedelta(days=settings.scrub_days)
    state = _open_round(home, site.name, now, interval)
    late = _is_late(site.name, state, now, interval)
    seen = _read(site, state, time.monotonic() + (LATE * seconds if late else seconds))
    left, failed = _repair(settings, site, seen, seconds)
    new = _advance(home, state, seen, left)
    scrub_state.save(home, site.name, new)
    _report(site.name, seen, state, new, repaired=_keys(seen.faults) - _keys(left))
    _show_age(site.name, new, now, interval)
    if failed:
        raise failed


def _open_round(home: Objects, name: str, now: datetime, interval: timedelta) -> ScrubState:
    """Load the round of a site, or begin one: the first, or the next if it is due."""
    state = scrub_state.load(home, name)
    if state is None:
        state = ScrubState(began=now, complete=now)
        # At once: if no pass ever ends, the age of the round must grow nevertheless.
        scrub_state.save(home, name, state)
    _show_age(name, state, now, interval)
    if state.due(now, interval):
        carried = tuple(key for key, _ in state.left)
        state = replace(state, began=now, after="", done=False, unseen=carried, read=0)
    return state


def _is_late(name: str, state: ScrubState, now: datetime, interval: timedelta) -> bool:
    """Whether the round would take longer than the interval; if so, say it in the log."""
    expected = state.expected(now)
    if expected is None or expected <= interval:
        return False
    log.warning(
        "round is late",
        site=name,
        expected_days=round(expected / timedelta(days=1), 1),
        scrub_days=round(interval / timedelta(days=1), 1),
    )
    return True


def _read(site: Site, state: ScrubState, deadline: float) -> _Seen:
    """Read on in the round until the deadline, and look again at what was left before."""
    totals, last, found = Totals(), None, list[Fault]()
    with Scrub(site, found.append) as scrub:
        if not state.done:
            totals, last = scrub.read_on(state.after, deadline)
        ended, unseen = not state.done and last is None, _unseen(state, found)
        left_before = {key for key, _ in state.left}
        scrub.look_again(left_before - _keys(found), unseen if ended else ())
    orphans = scrub.orphans.keys() - _keys(found)
    return _Seen(totals, last or "", ended, found, unseen, orphans)


def _repair(
    settings: Settings, site: Site, seen: _Seen, seconds: float
) -> tuple[list[Fault], StampedeError | None]:
    """Repair the faults and delete the orphans; return what is left, and the last error."""
    left, failed = seen.faults, None
    if seen.faults:
        try:
            left = _repair_site(settings, site, seen.faults)
        except StampedeError as error:
            log.error("mending failed", site=site.name, outcome=error.name, why=error.message)
            failed = error
    if site.name == "store":  # `reconcile` deletes them at the second site, after the first
        try:
            delete_orphans(settings, site.objects, seen.orphans, seconds)
        except StampedeError as error:
            log.error("orphans not deleted", site=site.name, outcome=error.name, why=error.message)
            failed = error
    return left, failed


def _advance(home: Objects, state: ScrubState, seen: _Seen, left: list[Fault]) -> ScrubState:
    """The state of the round after a pass."""
    read = state.read + seen.totals.bytes
    return replace(
        state,
        complete=home.now() if seen.ended else state.complete,
        after=seen.last,
        done=state.done or seen.ended,
        left=tuple(sorted({fault.key: fault.why for fault in left}.items()))[:MOST_LEFT],
        unseen=tuple(sorted(seen.unseen)),
        read=read,
        size=read if seen.ended else state.size,
    )


def _report(name: str, seen: _Seen, old: ScrubState, new: ScrubState, repaired: set[str]) -> None:
    """Count and log what a pass read, found and repaired."""
    totals, known = seen.totals, {key for key, _ in old.left}
    scrub_metrics.SCRUBBED_OBJECTS.labels(name).inc(totals.objects)
    scrub_metrics.SCRUBBED_BYTES.labels(name).inc(totals.bytes)
    scrub_metrics.SCRUB_ORPHANS.labels(name, "found").inc(totals.orphans)
    scrub_metrics.SCRUB_ORPHAN_BYTES.labels(name, "found").inc(totals.orphan_bytes)
    scrub_metrics.SCRUB_FOUND.labels(name).inc(len(_keys(seen.faults) - known))
    scrub_metrics.SCRUB_MENDED.labels(name).inc(len(repaired))
    scrub_metrics.SCRUB_DAMAGED.labels(name).set(len(new.left))
    log.info(
        "scrubbed",
        site=name,
        objects=totals.objects,
        bytes=totals.bytes,
        mended=sorted(repaired),
        left=len(new.left),
        orphans=totals.orphans,
        round_ended=new.done,
    )


def _unseen(state: ScrubState, found: Iterable[Fault]) -> set[str]:
    """`ScrubState.unseen` after a pass that found these faults.

    Rows of a run that cannot be read may point to any pack: then this round proves nothing.
    """
    keys = _keys(found)
    return set() if any(map(table_of, keys)) else set(state.unseen) - keys


def _repair_site(settings: Settings, site: Site, found: list[Fault]) -> list[Fault]:
    """Repair a site; what is left."""
    repair(settings, found)
    left: list[Fault] = []
    with Scrub(site, left.append) as scrub:
        scrub.look_again(_keys(found))
    return left


def _show_age(name: str, state: ScrubState, now: datetime, interval: timedelta) -> None:
    scrub_metrics.SCRUB_ROUND_AGE.labels(name).set(max(0.0, (now - state.complete).total_seconds()))
    scrub_metrics.SCRUB_INTERVAL.set(interval.total_seconds())


def _keys(faults: Iterable[Fault]) -> set[str]:
    return {fault.key for fault in faults}
