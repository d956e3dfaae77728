"""scrub: reads the whole store again and again, a bounded time at each event of a timer.

A pass goes on where the last one ended (`store.scrub_state`). What it finds damaged or lost is
restored from the other site at once, if there is one, and wrong thumbnails are drawn again. What
is left is looked at again in each pass.
"""

import time
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.handlers.scrub.deep_audit import mend
from stampede.handlers.scrub.delete_orphans import delete_orphans
from stampede.handlers.scrub.scrubber import Fault, Scrub, Totals
from stampede.store.integrity import scrub_state
from stampede.store.integrity.scrub_state import MOST_LEFT, ScrubState
from stampede.store.integrity.verification import table_of
from stampede.store.objects.object_store import Objects
from stampede.store.open import open_objects, open_replica
from stampede.store.packs.retention import Retention
from stampede.telemetry import metrics
from stampede.telemetry.logs import get_logger

log = get_logger()


def scrub_sites(settings: Settings) -> None:
    """Make one pass over each site. Raises `StoreDown`, `SetupError`.

    If what was found cannot be mended, the pass counts nevertheless; then its error is raised.
    """
    home = open_objects(settings)
    sites = {"store": home}
    if settings.replica:
        sites["replica"] = open_replica(settings)
    try:
        for name, site in sites.items():
            _pass(settings, name, home, site, settings.scrub_seconds / len(sites))
    except StampedeError as error:
        metrics.SCRUB_PASSES.labels(error.name).inc()
        raise
    metrics.SCRUB_PASSES.labels("done").inc()


def _pass(settings: Settings, name: str, home: Objects, site: Objects, seconds: float) -> None:
    now, interval = home.now(), timedelta(days=settings.scrub_days)
    state = scrub_state.load(home, name)
    if state is None:
        state = ScrubState(began=now, complete=now)
        # At once: if no pass ever ends, the age of the round must grow nevertheless.
        scrub_state.save(home, name, state)
    _show_age(name, state, now, interval)
    if state.due(now, interval):
        carried = tuple(key for key, _ in state.left)
        state = replace(state, began=now, after="", done=False, unseen=carried)
    deadline, known = time.monotonic() + seconds, {key for key, _ in state.left}
    totals, last, found = Totals(), None, list[Fault]()
    with _scrub(settings, name, site, found) as scrub:
        if not state.done:
            totals, last = scrub.read_on(state.after, deadline)
        ended, unseen = not state.done and last is None, _unseen(state, found)
        scrub.look_again(known - _keys(found), unseen if ended else ())
    left, failed = found, None
    if found:
        try:
            left = _mend(settings, name, site, found)
        except StampedeError as error:
            log.error("mending failed", site=name, outcome=error.name, why=error.message)
            failed = error
    if name == "store":  # `reconcile` deletes them at the second site, after the first
        try:
            delete_orphans(settings, site, scrub.orphans.keys() - _keys(found), seconds)
        except StampedeError as error:
            log.error("orphans not deleted", site=name, outcome=error.name, why=error.message)
            failed = error
    state = replace(
        state,
        complete=home.now() if ended else state.complete,
        after=last or "",
        done=state.done or ended,
        left=tuple(sorted({fault.key: fault.why for fault in left}.items()))[:MOST_LEFT],
        unseen=tuple(sorted(unseen)),
    )
    scrub_state.save(home, name, state)
    mended = _keys(found) - _keys(left)
    metrics.SCRUBBED_OBJECTS.labels(name).inc(totals.objects)
    metrics.SCRUBBED_BYTES.labels(name).inc(totals.bytes)
    metrics.SCRUB_ORPHANS.labels(name, "found").inc(totals.orphans)
    metrics.SCRUB_ORPHAN_BYTES.labels(name, "found").inc(totals.orphan_bytes)
    metrics.SCRUB_FOUND.labels(name).inc(len(_keys(found) - known))
    metrics.SCRUB_MENDED.labels(name).inc(len(mended))
    metrics.SCRUB_DAMAGED.labels(name).set(len(state.left))
    _show_age(name, state, now, interval)
    log.info(
        "scrubbed",
        site=name,
        objects=totals.objects,
        bytes=totals.bytes,
        mended=sorted(mended),
        left=len(state.left),
        orphans=totals.orphans,
        round_ended=state.done,
    )
    if failed:
        raise failed


def _unseen(state: ScrubState, found: Iterable[Fault]) -> set[str]:
    """`ScrubState.unseen` after a pass that found these faults.

    Rows of a run that cannot be read may point to any pack: then this round proves nothing.
    """
    keys = _keys(found)
    return set() if any(map(table_of, keys)) else set(state.unseen) - keys


def _mend(settings: Settings, name: str, site: Objects, found: list[Fault]) -> list[Fault]:
    """Mend a site; what is left."""
    mend(settings, found)
    left: list[Fault] = []
    with _scrub(settings, name, site, left) as scrub:
        scrub.look_again(_keys(found))
    return left


def _show_age(name: str, state: ScrubState, now: datetime, interval: timedelta) -> None:
    metrics.SCRUB_ROUND_AGE.labels(name).set(max(0.0, (now - state.complete).total_seconds()))
    metrics.SCRUB_INTERVAL.set(interval.total_seconds())


def _scrub(settings: Settings, name: str, site: Objects, found: list[Fault]) -> Scrub:
    return Scrub(
        name,
        site,
        Retention.of(settings).expired,
        found.append,
        draw=name == "store",  # the second site has copies of these thumbnails
        alone=not settings.replica,
        grace=timedelta(seconds=settings.grace_seconds),
        behind=name != "store",  # `reconcile` counts what was not copied yet
    )


def _keys(faults: Iterable[Fault]) -> set[str]:
    return {fault.key for fault in faults}
