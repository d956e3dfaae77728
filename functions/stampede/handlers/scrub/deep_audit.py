"""`stampede audit --deep`: scrubs the sites, repairs them from each other, says what is left."""

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple

from stampede.config.settings import Settings
from stampede.errors import Damaged
from stampede.handlers.reconcile.findings import NOT_REPLICATED, Finding, Findings
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.reconcile.repair import ORPHANED, Repairer
from stampede.handlers.scrub.scrubber import Fault, Scrub, Site, Totals
from stampede.handlers.thumbnails.check import STALE
from stampede.handlers.thumbnails.handler import Thumbnails
from stampede.store.open import open_objects, open_replica
from stampede.store.packs.retention import Retention
from stampede.store.programmes.rights import Rights
from stampede.store.tables.checkpoint import is_checkpoint
from stampede.store.tables.checkpoint_files import delete_damaged, is_file_beside

REPAIR_STEPS = "restore,packs,replica"  # steps of reconcile


class Result(NamedTuple):
    """What was read at each site, what was found, and what of that is left.

    `in_flight` counts objects that the second site lacks, younger than the settings' grace; None if
    the sites were not compared.
    """

    totals: dict[str, Totals]
    faults: list[Fault]
    left: list[Fault]
    in_flight: int | None = None


def deep_audit(
    settings: Settings,
    names: Sequence[str],
    repair: bool = False,
    progress: Callable[[str, int, int], None] = lambda site, objects, size: None,
) -> Result:
    """Scrub the sites of these names: `store`, `replica`.

    With `repair` what is wrong is restored from the other site, and what was wrong is read again.
    Raises `StoreDown`, `SetupError`.
    """
    totals, faults, in_flight = _scrub(settings, names, progress)
    left = faults
    if repair and (faults or settings.replica):
        _repair_sites(settings, faults)
        _, left, in_flight = _scrub(settings, names, progress)
    return Result(totals, faults, left, in_flight)


def _scrub(
    settings: Settings, names: Sequence[str], progress: Callable[[str, int, int], None]
) -> tuple[dict[str, Totals], list[Fault], int | None]:
    sites = {"store": open_objects, "replica": open_replica}
    totals, lock = {}, threading.Lock()
    found: dict[tuple[str, str], Fault] = {}

    def report(fault: Fault) -> None:
        with lock:
            found.setdefault(fault[:2], fault)

    for name in names:

        def count(objects: int, size: int, name: str = name) -> None:
            progress(name, objects, size)

        site = Site.of(settings, name, sites[name](settings))
        totals[name] = Scrub(site, report, count).run()
    in_flight = None
    if len(names) == 2:
        in_flight = 0
        for each in _differences(settings):
            if each.young:
                in_flight += 1
                continue
            fault = Fault(
                "replica" if each.kind == NOT_REPLICATED else "store", each.key, each.kind
            )
            found.setdefault(fault[:2], fault)
    return totals, sorted(found.values()), in_flight


def _differences(settings: Settings) -> list[Finding]:
    """What one site lacks, or has in another form."""
    chosen = settings.model_copy(update={"reconcile": "restore,replica"})
    found: list[Finding] = []
    Reconciler(chosen, found.append).run(repair=False, everything=True)
    return [each for each in found if each.kind != ORPHANED]


def _repair_sites(settings: Settings, faults: Sequence[Fault]) -> None:
    repair(settings, faults)
    chosen = settings.model_copy(update={"reconcile": REPAIR_STEPS})
    Reconciler(chosen).run(everything=True)


def repair(settings: Settings, faults: Iterable[Fault]) -> None:
    """Copy what is damaged or lost from the site where it is whole; draw wrong thumbnails again.

    A damaged checkpoint, or a file beside it, is deleted: each site has its own, and needs none.

    Raises `StoreDown`.
    """
    faults = list(faults)
    own = [fault for fault in faults if is_checkpoint(fault.key) or is_file_beside(fault.key)]
    for name, key in sorted({fault[:2] for fault in own}):
        delete_damaged({"store": open_objects, "replica": open_replica}[name](settings), key)
    if settings.replica:
        repairer = Repairer(
            open_objects(settings),
            open_replica(settings),
            Findings(True, lambda finding: None),
            True,
            Retention.of(settings).expired,
            rights=Rights.of(settings),
        )
        try:
            for key in sorted({fault.key for fault in faults if fault.why != STALE}):
                repairer.repair_key(key)
        finally:
            repairer.close()
    drawing = Thumbnails(settings)
    for key in sorted({fault.key for fault in faults if fault.why == STALE}):
        with suppress(Damaged):  # meanwhile: the next audit names it
            drawing.make(key, again=True)
