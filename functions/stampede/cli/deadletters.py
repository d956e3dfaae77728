"""`stampede deadletters`: look at what was refused, send it again, remove what is done with."""

import asyncio
import json
import signal
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.options import DATA, Data, results_console
from stampede.errors import SetupError
from stampede.functions import ALERT_FUNCTIONS
from stampede.logs import configure_logs

if TYPE_CHECKING:
    from stampede.cli.running import Running
    from stampede.deadletters.reader import DeadLetterReader, Stored
    from stampede.deadletters.replay import Replayed
    from stampede.settings import Settings
    from stampede.store.objects import Objects

TABLES = " or ".join(ALERT_FUNCTIONS.values())
LINES = 100

deadletters = typer.Typer(
    help="What could not be stored: look at it, send it again, remove what is done with.\n\n"
    "In the store of the `stampede up` that is running, or of STAMPEDE_STORE.",
    no_args_is_help=True,
)

TableName = Annotated[str | None, typer.Option("--table", help=TABLES)]
Reason = Annotated[str | None, typer.Option(help="where the function said this, or more")]


@deadletters.command("list")
def list_(
    table: Annotated[str | None, typer.Argument(help=TABLES)] = None,
    reason: Reason = None,
    lines: Annotated[
        int | None, typer.Option(min=1, help=f"most lines; {LINES}, or all with --json")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="a JSON object per line")] = False,
    data: Data = DATA,
) -> None:
    """List dead letters, those that came last first, and count them."""
    from stampede.deadletters.display import as_dict, tabled
    from stampede.deadletters.reader import DeadLetterFilter, DeadLetterReader, stored_offsets

    objects = objects_of(data)
    shelf, stored = (
        DeadLetterReader(objects, DeadLetterFilter(table, None, reason)),
        stored_offsets(objects),
    )
    if as_json:
        for letter in islice(shelf.letters(), lines):
            typer.echo(json.dumps(as_dict(letter, stored)))
    else:
        results_console().print(*tabled(shelf.letters(), stored, lines or LINES), sep="\n")
    shelf.check()


@deadletters.command()
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="as `list` has it")],
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the alert's bytes there")
    ] = None,
    data: Data = DATA,
) -> None:
    """Show all there is to a dead letter: each attribute, and what the function answered."""
    from stampede.deadletters.display import described
    from stampede.deadletters.reader import DeadLetterFilter, DeadLetterReader, stored_offsets

    objects = objects_of(data)
    shelf = DeadLetterReader(objects, DeadLetterFilter(ids=frozenset([name])))
    letter = next(shelf.letters(), None)
    if letter is None:
        shelf.check()
        return
    results_console().print(described(letter, stored_offsets(objects)))
    if save:
        try:
            save.write_bytes(letter.data)
        except OSError as error:
            raise SetupError(f"cannot write {save}: {error.strerror}") from None


@deadletters.command()
def replay(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="which")] = None,
    everything: Annotated[bool, typer.Option("--all", help="all of them")] = False,
    table: TableName = None,
    reason: Reason = None,
    sink: Annotated[
        str | None,
        typer.Option(help="URL of the function of --table; without, those of `stampede up`"),
    ] = None,
    data: Data = DATA,
) -> None:
    """Send dead letters to their functions again, once what was wrong is mended.

    The event is as it was, byte by byte. What is stored then closes the ledger; what is refused
    again stays as it is, and the exit status is 1. What is stored already is not sent, unless
    you give its ID; running it again is harmless.
    """
    if not (ids or everything or table or reason):
        raise SetupError("which dead letters? give IDs, --all, --table or --reason")
    from stampede.cli.running import running, settings_of
    from stampede.deadletters.display import outcome
    from stampede.deadletters.reader import (
        NOTHING,
        DeadLetterFilter,
        DeadLetterReader,
        stored_offsets,
    )
    from stampede.store.open import open_objects

    configure_logs()
    found = running(data.absolute())
    settings = settings_of(found)
    objects = open_objects(settings)
    shelf = DeadLetterReader(
        objects, DeadLetterFilter(table, frozenset(ids) if ids else None, reason)
    )
    sinks = sinks_of(found, sink, table)
    done = _replay(shelf, sinks, NOTHING if ids else stored_offsets(objects), settings)
    status, lines = outcome(done, stored_offsets(objects))
    results_console().print(*lines, sep="\n", soft_wrap=True)
    if done.complete:
        shelf.check()
    sys.exit(status)


def _replay(
    shelf: "DeadLetterReader", sinks: dict[str, str], stored: "Stored", settings: "Settings"
) -> "Replayed":
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from stampede.deadletters.replay import replay as send

    columns = (TextColumn("replaying"), BarColumn(), TextColumn("{task.fields[said]}"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=None, said="")

        def tell(done: "Replayed") -> None:
            said = f"{done.accepted:,} accepted, {len(done.refused):,} refused again"
            progress.update(task, said=said)

        async def run() -> "Replayed":
            stop = asyncio.Event()
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, stop.set)
            return await send(shelf.letters(), sinks, stored, settings, stop, tell)

        return asyncio.run(run())


def sinks_of(found: "Running | None", sink: str | None, table: str | None) -> dict[str, str]:
    """The URL of the function that fills each table. Raises `SetupError` where none is known."""
    if sink:
        if not table:
            raise SetupError("--sink is the function of one table: say which with --table")
        if not sink.startswith(("http://", "https://")):
            raise SetupError(f"--sink is no http(s) URL: {sink}")
        return {table: sink}
    if not found:
        raise SetupError(
            "no functions run here: start `stampede up`, set STAMPEDE_FUNCTIONS, or give --table "
            "and --sink URL"
        )
    return {filled: found.urls[name] for name, filled in ALERT_FUNCTIONS.items()}


@deadletters.command()
def purge(
    table: TableName = None,
    everything: Annotated[
        bool, typer.Option("--all", help="also those whose alerts are not stored")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    data: Data = DATA,
) -> None:
    """Remove the dead letters whose alerts are stored since; with --all every one.

    With --all their alerts are lost where they are not stored, and the ledger will show their
    offsets as missing. A second site keeps its copies.
    """
    from stampede.deadletters.purge import purge as remove
    from stampede.deadletters.reader import (
        DeadLetterFilter,
        DeadLetterReader,
        is_stored,
        stored_offsets,
    )

    objects = objects_of(data)
    stored, shelf = stored_offsets(objects), DeadLetterReader(objects, DeadLetterFilter(table))
    if everything and not yes:
        confirm(shelf, stored)
    done = remove(objects, shelf, lambda *at: everything or is_stored(stored, *at))
    results_console().print(f"{done.removed:,} dead letters removed, {done.kept:,} kept")
    shelf.check()


def confirm(shelf: "DeadLetterReader", stored: "Stored") -> None:
    """Say what will be lost, and ask. Raises `typer.Abort`."""
    from stampede.deadletters.reader import is_stored

    since = [is_stored(stored, letter.table, letter.position) for letter in shelf.letters()]
    lost = len(since) - sum(since)
    typer.confirm(
        f"{len(since):,} dead letters, {lost:,} of them not stored: these {lost:,} alerts will be "
        "lost, and the ledger will show them as missing. Remove them?",
        abort=True,
        err=True,
    )


def objects_of(data: Path) -> "Objects":
    """The store of the running system, or of the environment."""
    from stampede.cli.running import running, settings_of
    from stampede.store.open import open_objects

    return open_objects(settings_of(running(data.absolute())))
