"""What `stampede audit` prints of objects: damaged, lost, in quarantine."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from stampede.settings import Settings


def report_objects(settings: Settings, console: Console) -> int:
    """Print the objects in quarantine and the packs that are lost; return the exit status.

    Of a large table only some rows are checked: `--deep` checks all.
    """
    from stampede.clock import now_mjd
    from stampede.functions.restore import quarantined
    from stampede.store.open import open_objects
    from stampede.store.packs import expired
    from stampede.store.references import check_packs
    from stampede.store.schema import CUTOUT_PACKS, THUMBNAIL_PACKS

    objects, bad = open_objects(settings), []
    for key, why in quarantined(objects).items():
        bad.append(f"in quarantine: {key}: {why}")
    for spec in (CUTOUT_PACKS, THUMBNAIL_PACKS):
        check = check_packs(
            objects, spec, lambda key: expired(key, settings.cutout_days, now_mjd())
        )
        bad += [f"lost: {key}, into which rows point" for key in check.lost]
        if check.rows < check.all_rows:
            share = f"{check.rows:,} of {check.all_rows:,} rows of {spec.locations.name}"
            console.print(f"packs were checked for {share}; --deep checks all", highlight=False)
    for line in bad:
        console.print(line, style="bold red", highlight=False, markup=False, soft_wrap=True)
    return 1 if bad else 0


def report_deep(settings: Settings, names: list[str], repair: bool, console: Console) -> int:
    """Read everything, print what is wrong and what was mended; return the exit status."""
    from stampede.functions.deep_audit import deep_audit

    def progress(name: str, objects: int, size: int) -> None:
        line = f"{name}: {objects:,} objects, {size / 1e9:,.2f} GB"
        print(line, file=sys.stderr, end="\r" if sys.stderr.isatty() else "\n", flush=True)

    result = deep_audit(settings, names, repair, progress)
    left = {fault[:2] for fault in result.left}
    for fault in sorted({*result.faults, *result.left}):
        mended = fault[:2] not in left
        line = f"{'mended' if mended else 'damaged'} at {fault.site}: {fault.key}: {fault.why}"
        style = "yellow" if mended else "bold red"
        console.print(line, style=style, highlight=False, markup=False, soft_wrap=True)
    for name, totals in result.totals.items():
        line = f"{name}: {totals.objects:,} objects read, {totals.bytes / 1e9:,.2f} GB"
        if totals.foreign:
            line += f", and {totals.foreign:,} that are none of Stampede's were not verified"
        console.print(line, highlight=False)
    if left:
        console.print(f"{len(left):,} objects are damaged or lost", style="bold red")
        return 1
    console.print("everything reads as it was stored", style="green")
    return 0
