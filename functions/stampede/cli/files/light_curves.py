"""`stampede import`: store light curves of an archive beside those of alerts."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.options import Data, progress_console, results_console
from stampede.runtime.counts import counted

if TYPE_CHECKING:
    from stampede.archives.importer import Importer, Store, Tally


Archive = Annotated[
    str, typer.Argument(help="name of the archive: small letters and digits, as ztfdr24")
]
Paths = Annotated[
    list[Path],
    typer.Argument(
        help="files, and folders of files: Parquet, or JSON with an object a line, a list of "
        "objects or one object; a row per object with lists of measurements, or a row per "
        "measurement"
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="ztf-dr (light curves of ZTF's data releases) or columns; recognised by default",
    ),
]
Columns = Annotated[
    list[str] | None,
    typer.Option(
        "--column",
        metavar="PART=COLUMN[:UNIT]",
        help="the column that has a part of a measurement: object_id, time, band, ra, dec, one of "
        "mag, flux and difference, error, source_id, detector, quality. The unit of a time is mjd "
        "or jd and a scale, as jd-tdb (mjd-utc by default), that of a flux nJy, uJy, mJy or Jy",
    ),
]
Bands = Annotated[
    list[str] | None,
    typer.Option(
        "--band", metavar="NAME=BAND", help="the band that the files name so, for example 1=g"
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="only show what would be stored: write nothing")
]


def import_archive(
    archive: Archive,
    paths: Paths,
    layout: Format = None,
    columns: Columns = None,
    bands: Bands = None,
    dry_run: DryRun = False,
    data: Data = None,
) -> None:
    """Store the light curves in files of an archive, beside those of alerts.

    The archive is a survey without alerts: its name is the survey of its points. All routes and
    pages give them; the ledger of alerts and the audits know nothing of them. The store is that of
    the running `stampede up`, or STAMPEDE_STORE.

    A magnitude, or a flux of the object in all (--column flux=), is stored as total_flux; a flux of
    a difference image (--column difference=) as flux. Times become MJD TAI, as they are otherwise:
    heliocentric ones stay heliocentric.

    A row that cannot be stored is named, with file and fault, and the others are stored. To import
    the same files again is harmless, and continues an import that was stopped.

    Exits with 1 if a file, a row or a measurement has a fault.
    """
    from stampede.archives.importer import Importer, Store, files_in
    from stampede.archives.layouts import Asked
    from stampede.archives.names import check_name
    from stampede.cli.running import running, settings_of
    from stampede.runtime.clock import mjd
    from stampede.store.open import open_objects

    asked = Asked.of(layout, columns or [], bands or [])
    files = files_in(paths)
    objects = open_objects(settings_of(running(data)))
    check_name(archive, objects)
    importer = Importer(archive, asked, mjd(objects.now()) + 1)
    sys.exit(_import(importer, files, None if dry_run else Store.of(objects)))


def _import(importer: Importer, files: list[Path], store: Store | None) -> int:
    """Store what the files hold and print what became of it; the exit status."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = progress_console()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
    stored = 0
    try:
        with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
            task = bar.add_task("importing", total=len(files), text="")
            for points in importer.runs(files):
                if store:
                    store.append(points)
                stored += points.num_rows
                bar.update(task, completed=importer.tally.files, text=counted(stored, "point"))
            bar.update(task, completed=len(files))
    except KeyboardInterrupt:
        console.print(
            f"stopped after {counted(stored, 'point')}; run the same again to store the rest: what "
            "is stored stays, and is not stored twice"
        )
        return 130
    _report(importer.tally, dry_run=store is None)
    return 1 if importer.tally.refused else 0


def _report(tally: Tally, dry_run: bool) -> None:
    """Print what became of the files."""
    from stampede.deadletters.display import text

    console = results_console()
    for layout, file in tally.layouts.items():
        console.print(text(f"{file}: {layout}"), soft_wrap=True)
    done = "would be stored, nothing was" if dry_run else "stored"
    console.print(text(f"{counted(tally.points, 'point')} {done}"), soft_wrap=True)
    if tally.unmeasured:
        what = counted(tally.unmeasured, "measurement")
        console.print(text(f"{what} without a value left out"), soft_wrap=True)
    for fault in tally.faults:
        console.print(text(str(fault), "yellow"), soft_wrap=True)
    if tally.refused:
        more = tally.refused - len(tally.faults)
        what = f"{counted(tally.refused, 'fault')}" + (f", {more:,} not shown" if more else "")
        console.print(text(what, "bold red"), soft_wrap=True)
