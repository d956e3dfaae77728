"""What `stampede audit` finds and prints of objects: damaged, lost, in quarantine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, NamedTuple

from stampede.runtime.counts import are, counted

if TYPE_CHECKING:
    from rich.console import Console

    from stampede.config.settings import Settings
    from stampede.handlers.scrub.deep_audit import Result
    from stampede.handlers.scrub.scrubber import Fault, Totals


class Checked(NamedTuple):
    """How many rows of a table of locations were held to the packs that they name."""

    table: str
    rows: int
    all_rows: int


class ObjectReport(NamedTuple):
    """Objects that are in quarantine or lost, and what was looked at."""

    faults: list[Fault]
    checked: list[Checked]


def find_objects(settings: Settings) -> ObjectReport:
    """The objects in quarantine and the packs that are lost. Raises `StoreDown`.

    Of a large table only some rows are checked: `--deep` checks all.
    """
    from stampede.handlers.reconcile.repair import quarantined
    from stampede.handlers.scrub.scrubber import Fault
    from stampede.store.integrity.references import check_packs
    from stampede.store.open import open_objects
    from stampede.store.packs.retention import Retention
    from stampede.store.runs.schema import PACK_SPECS

    objects, checked = open_objects(settings), []
    faults = [
        Fault("store", key, f"in quarantine: {why}") for key, why in quarantined(objects).items()
    ]
    for spec in PACK_SPECS.values():
        check = check_packs(objects, spec, Retention.of(settings).expired)
        faults += [Fault("store", key, "lost: rows point to it") for key in check.lost]
        faults += [Fault("store", key, f"damaged: {why}") for key, why in check.damaged.items()]
        checked.append(Checked(spec.locations.name, check.rows, check.all_rows))
    return ObjectReport(faults, checked)


def report_objects(report: ObjectReport, console: Console) -> None:
    """Print them, and of which tables not every row was checked."""
    for table, rows, all_rows in report.checked:
        if rows < all_rows:
            share = f"{rows:,} of {all_rows:,} rows of {table}"
            console.print(f"packs were checked for {share}; --deep checks all", highlight=False)
    for fault in report.faults:
        line = f"{fault.key}: {fault.why}"
        console.print(line, style="bold red", highlight=False, markup=False, soft_wrap=True)


def show_progress(name: str, objects: int, size: int) -> None:
    """Show on stderr how far `--deep` is."""
    line = f"{name}: {counted(objects, 'object')}, {size / 1e9:,.2f} GB"
    print(line, file=sys.stderr, end="\r" if sys.stderr.isatty() else "\n", flush=True)


def report_deep(result: Result, console: Console, orphan_days: float) -> None:
    """Print what is wrong, what was mended, and what was read."""
    left = {fault[:2] for fault in result.left}
    for fault in sorted({*result.faults, *result.left}):
        repaired = fault[:2] not in left
        line = f"{'mended' if repaired else 'damaged'} at {fault.site}: {fault.key}: {fault.why}"
        style = "yellow" if repaired else "bold red"
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)
    for name, totals in result.totals.items():
        line = f"{name}: {counted(totals.objects, 'object')} read, {totals.bytes / 1e9:,.2f} GB"
        if totals.foreign:
            line += f", and {totals.foreign:,} that are none of Stampede's were not verified"
        console.print(line, highlight=False)
        if totals.orphans:
            console.print(_orphans(totals, orphan_days), highlight=False)
    if result.in_flight:
        line = (
            f"{counted(result.in_flight, 'new object')} {are(result.in_flight)} in flight to the "
            "second site"
        )
        console.print(line, highlight=False)
    if left:
        console.print(f"{counted(left, 'object')} {are(left)} damaged or lost", style="bold red")
    else:
        console.print("everything reads as it was stored", style="green")


def _orphans(totals: Totals, days: float) -> str:
    then = f"`scrub` deletes them after {days:g} days" if days else "orphan_days is 0: they stay"
    return (
        f"  of these {counted(totals.orphans, 'orphan')}, {totals.orphan_bytes / 1e6:,.2f} MB, "
        f"packs whose rows readers get from other packs: {then}"
    )
