"""`stampede deadletters`: list, show, replay and purge dead letters."""

from __future__ import annotations

import json
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.options import DATA, Data, progress_console, results_console
from stampede.errors import SetupError
from stampede.functions import ALERT_FUNCTIONS

if TYPE_CHECKING:
    from asyncio import Event

    from stampede.cli.running import Running
    from stampede.deadletters.reader import DeadLetterReader, StoredOffsets
    from stampede.deadletters.replay import Replayed
    from stampede.settings import Settings
    from stampede.store.objects import Objects

TABLE_NAMES = " or ".join(ALERT_FUNCTIONS.values())
LINES = 100  # of a list without --lines and --json

deadletters = typer.Typer(
    help="Alerts that could not be stored: list them, send them again, remove them.\n\n"
    "In the store of the `stampede up` that is running, or in STAMPEDE_STORE.",
    no_args_is_help=True,
)

TableName = Annotated[str | None, typer.Option("--table", help=TABLE_NAMES)]
Reason = Annotated[str | None, typer.Option(help="only where the reason contains this text")]


@deadletters.command("list")
def list_(
    table: Annotated[str | None, typer.Argument(help=TABLE_NAMES)] = None,
    reason: Reason = None,
    lines: Annotated[
        int | None,
        typer.Option(min=1, help=f"at most so many; without it {LINES}, or all with --json"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="a JSON object per line")] = False,
    data: Data = DATA,
) -> None:
    """List dead letters, the newest first, and count them."""
    from stampede.deadletters.display import as_dict, letter_table
    from stampede.deadletters.reader import DeadLetterFilter, DeadLetterReader, stored_offsets

    objects = objects_of(data)
    reader = DeadLetterReader(objects, DeadLetterFilter(table, None, reason))
    stored = stored_offsets(objects)
    if as_json:
        for letter in islice(reader.letters(), lines):
            typer.echo(json.dumps(as_dict(letter, stored)))
    else:
        shown = letter_table(reader.letters(), stored, lines or LINES)
        results_console().print(*shown, sep="\n")
    reader.check()


@deadletters.command()
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="an id that `list` shows")],
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the bytes of the alert to this file")
    ] = None,
    data: Data = DATA,
) -> None:
    """Show a dead letter: every attribute, and what the function answered."""
    from stampede.deadletters.display import letter_details
    from stampede.deadletters.reader import DeadLetterFilter, DeadLetterReader, stored_offsets

    objects = objects_of(data)
    reader = DeadLetterReader(objects, DeadLetterFilter(ids=frozenset([name])))
    letter = next(reader.letters(), None)
    if letter is None:
        reader.check()
        return
    results_console().print(letter_details(letter, stored_offsets(objects)))
    if save:
        try:
            save.write_bytes(letter.data)
        except OSError as error:
            raise SetupError(f"cannot write {save}: {error.strerror}") from None


@deadletters.command()
def replay(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="ids that `list` shows")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="all of them")] = False,
    table: TableName = None,
    reason: Reason = None,
    sink: Annotated[
        str | None,
        typer.Option(help="URL of the function of --table; without it, those of `stampede up`"),
    ] = None,
    data: Data = DATA,
) -> None:
    """Send dead letters to their functions again, when the cause is repaired.

    Each event is sent unchanged, byte by byte. If it is stored, the ledger counts it as stored; if
    it is refused again, it stays a dead letter and the exit status is 1. Letters that are already
    stored are not sent, unless you give their ID. Running it again is harmless.
    """
    if not (ids or everything or table or reason):
        raise SetupError("which dead letters? give IDs, --all, --table or --reason")
    from stampede.cli.running import running, settings_of
    from stampede.deadletters.display import replay_report
    from stampede.deadletters.reader import (
        NOTHING_STORED,
        DeadLetterFilter,
        DeadLetterReader,
        stored_offsets,
    )
    from stampede.logs import configure_logs
    from stampede.store.open import open_objects

    configure_logs()
    system = running(data.absolute())
    settings = settings_of(system)
    objects = open_objects(settings)
    letter_filter = DeadLetterFilter(table, frozenset(ids) if ids else None, reason)
    reader = DeadLetterReader(objects, letter_filter)
    sinks = sinks_of(system, sink, table)
    stored = NOTHING_STORED if ids else stored_offsets(objects)
    done = _replay(reader, sinks, stored, settings)
    status, lines = replay_report(done, stored_offsets(objects))
    results_console().print(*lines, sep="\n", soft_wrap=True)
    if done.complete:
        reader.check()
    sys.exit(status)


def _replay(
    reader: DeadLetterReader, sinks: dict[str, str], stored: StoredOffsets, settings: Settings
) -> Replayed:
    """Send the letters, with a progress bar."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from stampede.deadletters.replay import replay as replay_letters
    from stampede.interrupts import run_until_stopped

    columns = (TextColumn("replaying"), BarColumn(), TextColumn("{task.fields[counts]}"))
    with Progress(*columns, TimeElapsedColumn(), console=progress_console()) as bar:
        task = bar.add_task("", total=None, counts="")

        def progress(done: Replayed) -> None:
            counts = f"{done.accepted:,} accepted, {len(done.refused):,} refused again"
            bar.update(task, counts=counts)

        async def run(stop: Event) -> Replayed:
            return await replay_letters(reader.letters(), sinks, stored, settings, stop, progress)

        return run_until_stopped(run)


def sinks_of(system: Running | None, sink: str | None, table: str | None) -> dict[str, str]:
    """The URL of the function that fills each table. Raises `SetupError` if none is known."""
    if sink:
        if not table:
            raise SetupError("--sink is the function of one table: say which with --table")
        if not sink.startswith(("http://", "https://")):
            raise SetupError(f"--sink is not an http(s) URL: {sink}")
        return {table: sink}
    if not system:
        raise SetupError(
            "no functions run here: start `stampede up`, set STAMPEDE_FUNCTIONS, or give --table "
            "and --sink URL"
        )
    return {filled: system.urls[name] for name, filled in ALERT_FUNCTIONS.items()}


@deadletters.command()
def purge(
    table: TableName = None,
    everything: Annotated[
        bool, typer.Option("--all", help="also those whose alerts are not stored")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    data: Data = DATA,
) -> None:
    """Remove the dead letters whose alerts were stored since; with --all every one.

    With --all, alerts that are not stored are lost, and the ledger shows their offsets as missing.
    A second site keeps its copies.
    """
    from stampede.deadletters.purge import purge as purge_letters
    from stampede.deadletters.reader import (
        DeadLetterFilter,
        DeadLetterReader,
        is_stored,
        stored_offsets,
    )

    objects = objects_of(data)
    stored = stored_offsets(objects)
    reader = DeadLetterReader(objects, DeadLetterFilter(table))
    if everything and not yes:
        confirm(reader, stored)
    done = purge_letters(objects, reader, lambda *letter: everything or is_stored(stored, *letter))
    results_console().print(f"{done.removed:,} dead letters removed, {done.kept:,} kept")
    reader.check()


def confirm(reader: DeadLetterReader, stored: StoredOffsets) -> None:
    """Name what will be lost, and ask. Raises `typer.Abort` if the answer is no."""
    from stampede.deadletters.reader import is_stored

    safe = [is_stored(stored, letter.table, letter.position) for letter in reader.letters()]
    lost = len(safe) - sum(safe)
    typer.confirm(
        f"{len(safe):,} dead letters, {lost:,} of them not stored: these {lost:,} alerts will be "
        "lost, and the ledger will show them as missing. Remove them?",
        abort=True,
        err=True,
    )


def objects_of(data: Path) -> Objects:
    """The store of the running system, or of the environment."""
    from stampede.cli.running import running, settings_of
    from stampede.store.open import open_objects

    return open_objects(settings_of(running(data.absolute())))
