"""`stampede ingest`: store alerts from disk, in place of Kafka."""

import asyncio
import signal
import sys
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.audit import entries_of, report
from stampede.cli.options import DATA, Data, progress_console, results_console
from stampede.errors import SetupError
from stampede.logs import configure_logs

if TYPE_CHECKING:
    from rich.console import Console

    from stampede.cli.running import Running


def ingest(
    paths: Annotated[list[Path], typer.Argument(help="Avro files, folders, tarballs of alerts")],
    data: Data = DATA,
    store: Annotated[
        str | None,
        typer.Option(help="with no `stampede up` running: where to store, as for `up`"),
    ] = None,
) -> None:
    """Store alerts from disk, in place of Kafka; then prove that each is stored.

    Goes to the `stampede up` that is running, or starts the functions for as long as it takes.
    Running it again is harmless. Exits with 1 if any alert is missing afterwards.
    """
    from stampede.cli.running import running
    from stampede.ingest import files

    configure_logs()
    files.find(paths)  # raises before anything is started
    console = progress_console()
    if found := running(data.absolute()):
        sys.exit(_ingest(paths, found, console))
    with temporary_system(data, store, console) as found:
        sys.exit(_ingest(paths, found, console))


def temporary_system(
    data: Path, store: str | None, console: "Console"
) -> AbstractContextManager["Running"]:
    """The functions, started on this machine for as long as it takes.

    Raises `SetupError` where the package that starts them, `stampede_local`, is not installed.
    """
    for point in entry_points(group="stampede.temporary_system"):
        return point.load()(data, store, console)
    raise SetupError("no functions run here: set STAMPEDE_FUNCTIONS to their URLs")


def _ingest(paths: list[Path], found: "Running", console: "Console") -> int:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from stampede.ingest.send import ingest as send
    from stampede.ingest.send import ways_of
    from stampede.store.open import open_objects

    objects, ways = open_objects(found.settings), ways_of(found.urls)
    with Progress(
        TextColumn("ingesting"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("alerts"),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        task = progress.add_task("", total=None)

        async def run():
            stop = asyncio.Event()
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, stop.set)
            tell = lambda count: progress.update(task, completed=count)  # noqa: E731
            return await send(paths, ways, objects, found.settings, stop, tell)

        done = asyncio.run(run())
    if not done.complete:
        console.print(
            f"stopped after {done.alerts:,} alerts; run the same again to store the rest: "
            "what is stored stays, and is not stored twice"
        )
        return 130
    return report(entries_of(found.settings, [done.topic]), results_console())
