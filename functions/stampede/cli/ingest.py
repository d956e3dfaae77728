"""`stampede ingest`: store alerts from disk, in place of Kafka."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.audit import entries_of, report
from stampede.cli.options import DATA, Data, progress_console, results_console
from stampede.errors import SetupError

if TYPE_CHECKING:
    from asyncio import Event
    from contextlib import AbstractContextManager

    from rich.console import Console

    from stampede.cli.running import Running
    from stampede.ingest.send import Ingested


def ingest(
    paths: Annotated[list[Path], typer.Argument(help="Avro files, folders, tarballs of alerts")],
    data: Data = DATA,
    store: Annotated[
        str | None,
        typer.Option(help="with no `stampede up` running: where to store, as for `up`"),
    ] = None,
) -> None:
    """Store alerts from disk, in place of Kafka; then prove that each is stored.

    Uses the `stampede up` that is running, or starts the functions for as long as it takes.
    Running it again is harmless. Exits with 1 if any alert is missing afterwards.
    """
    from stampede.cli.running import running
    from stampede.ingest import files
    from stampede.logs import configure_logs

    configure_logs()
    files.find(paths)  # raises before anything is started
    console = progress_console()
    if system := running(data.absolute()):
        sys.exit(_ingest(paths, system, console))
    with temporary_system(data, store, console) as system:
        sys.exit(_ingest(paths, system, console))


def temporary_system(
    data: Path, store: str | None, console: Console
) -> AbstractContextManager[Running]:
    """The functions, started on this machine on entering and stopped on leaving.

    Raises `SetupError` if the package that starts them, `stampede_local`, is not installed.
    """
    from importlib.metadata import entry_points

    for point in entry_points(group="stampede.temporary_system"):
        return point.load()(data, store, console)
    raise SetupError("no functions run here: set STAMPEDE_FUNCTIONS to their URLs")


def _ingest(paths: list[Path], system: Running, console: Console) -> int:
    """Store the alerts and print the ledger; return the exit status."""
    done = _send(paths, system, console)
    if not done.complete:
        console.print(
            f"stopped after {done.alerts:,} alerts; run the same again to store the rest: "
            "what is stored stays, and is not stored twice"
        )
        return 130
    return report(entries_of(system.settings, [done.topic]), results_console())


def _send(paths: list[Path], system: Running, console: Console) -> Ingested:
    """Send the alerts to the functions, with a progress bar."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from stampede.ingest.send import alert_sinks
    from stampede.ingest.send import ingest as send_alerts
    from stampede.interrupts import run_until_stopped
    from stampede.store.open import open_objects

    objects, sinks = open_objects(system.settings), alert_sinks(system.urls)
    with Progress(
        TextColumn("ingesting"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("alerts"),
        TimeElapsedColumn(),
        console=console,
    ) as bar:
        task = bar.add_task("", total=None)

        def progress(count: int) -> None:
            bar.update(task, completed=count)

        async def send(stop: Event) -> Ingested:
            return await send_alerts(paths, sinks, objects, system.settings, stop, progress)

        return run_until_stopped(send)
