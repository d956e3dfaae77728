"""`stampede rebuild`: read every table as if there were no checkpoint, and write new ones."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.options import Data, results_console
from stampede.runtime.counts import counted

if TYPE_CHECKING:
    from rich.console import Console

    from stampede.handlers.reconcile.checkpoints import Rebuilt


class Site(StrEnum):
    """The site whose tables are read."""

    STORE = "store"
    REPLICA = "replica"


def rebuild(
    site: Annotated[Site, typer.Option(help="the store itself, or the second site")] = Site.STORE,
    check: Annotated[
        bool, typer.Option("--check", help="only compare: write and delete nothing")
    ] = False,
    data: Data = None,
) -> None:
    """Read every table from its runs alone, and write a new checkpoint where the old one is wrong.

    A drill: it shows how long a start takes without checkpoints, and whether they say what the runs
    say. Nothing needs it to recover: without checkpoints every program reads the runs by itself.
    It may be repeated, and run at any time.

    The exit status is 1 if a run is damaged or lost, or a checkpoint cannot be read; with
    `--check` also if a checkpoint is wrong.
    """
    from stampede.cli.running import running, settings_of
    from stampede.handlers.reconcile.checkpoints import rebuild as rebuild_tables
    from stampede.store.open import open_objects, open_replica
    from stampede.telemetry.logs import configure_command_logs

    configure_command_logs()  # to stderr: stdout has the results alone
    settings = settings_of(running(data))
    objects = (open_replica if site is Site.REPLICA else open_objects)(settings)
    console, left = results_console(), 0
    for table in rebuild_tables(objects, not check, show_begin):
        report(table, check, console)
        left += len(table.faults) + len(table.unreadable) + (len(table.wrong) if check else 0)
    if not left:
        console.print("every table reads as its runs say", style="green")
    sys.exit(1 if left else 0)


def show_begin(table: str, parts: int) -> None:
    """Show on stderr which table is read."""
    print(f"{table}: reading {counted(parts, 'part')}", file=sys.stderr, flush=True)


def report(table: Rebuilt, check: bool, console: Console) -> None:
    """Print what was read, what is wrong with the checkpoint, and what was written."""
    line = f"{table.table}: {counted(table.parts, 'part')} read in {table.seconds:,.2f} s"
    if table.before:
        line += f"; the checkpoint {table.before} lacks {table.newer:,} of them"
    elif table.parts and not table.unreadable:
        line += "; there was no checkpoint"
    if table.written:
        line += f"; new: {table.written}"
    console.print(line, highlight=False, soft_wrap=True)
    repaired = "" if check else " (mended)"
    for key, why in sorted(table.wrong.items()):
        line = f"{key}: {why}{repaired}"
        console.print(line, style="yellow", highlight=False, markup=False, soft_wrap=True)
    for key, why in sorted((table.faults | table.unreadable).items()):
        line = f"{key}: {why}"
        console.print(line, style="bold red", highlight=False, markup=False, soft_wrap=True)
