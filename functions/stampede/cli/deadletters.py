"""`stampede deadletters`: list, show, replay, accept and purge dead letters."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.addresses import shown
from stampede.cli.options import Data, progress_console, results_console
from stampede.errors import SetupError
from stampede.events import ALERT_FUNCTIONS, table_urls
from stampede.runtime.counts import counted

if TYPE_CHECKING:
    import asyncio

    from stampede.cli.running import Running
    from stampede.config.settings import Settings
    from stampede.deadletters.accept import Acceptances
    from stampede.deadletters.reader import DeadLetterReader
    from stampede.deadletters.replay import Replayed
    from stampede.deadletters.stored import AlertCheck, StoredAlerts, Whether
    from stampede.events.cloudevents.event import Event
    from stampede.store.objects.object_store import Objects

Goes = Callable[["Whether", bool], bool]
"""Whether to remove a letter: by whether it is stored, and whether it is accepted."""
TABLE_NAMES = " or ".join(ALERT_FUNCTIONS.values())
LINES = 100  # of a list without --lines and --json

deadletters = typer.Typer(
    help="Alerts that could not be stored: list them, send them again, accept that they are "
    "rightly refused, remove them.\n\n"
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
    data: Data = None,
) -> None:
    """List dead letters, the newest first, and count them.

    Stored "since" means that the very alert is in the table now; "offset only", that its offset is
    stored, but by another alert, or that its bytes cannot be decoded here. Accepted letters are
    those that `accept` names.
    """
    from stampede.deadletters.accept import Acceptances
    from stampede.deadletters.display import as_dict, letter_table
    from stampede.deadletters.reader import DeadLetterFilter, DeadLetterReader

    with stored_alerts(data) as (objects, stored):
        reader = DeadLetterReader(objects, DeadLetterFilter(table, None, reason))
        acceptances = Acceptances(objects)
        if as_json:
            for letter, whether in islice(stored.of(reader.letters()), lines):
                typer.echo(json.dumps(as_dict(letter, whether, acceptances.of(letter))))
        else:
            shown = letter_table(reader.letters(), stored, acceptances, lines or LINES)
            results_console().print(*shown, sep="\n")
    reader.check()


@deadletters.command()
def show(
    name: Annotated[str, typer.Argument(metavar="ID", help="an id that `list` shows")],
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="write the bytes of the alert to this file")
    ] = None,
    data: Data = None,
) -> None:
    """Show a dead letter: every attribute, and what the function answered."""
    from stampede.deadletters.accept import Acceptances
    from stampede.deadletters.display import letter_details
    from stampede.deadletters.reader import DeadLetterFilter, DeadLetterReader

    with stored_alerts(data) as (objects, stored):
        reader = DeadLetterReader(objects, DeadLetterFilter(ids=frozenset([name])))
        letter, whether = next(stored.of(islice(reader.letters(), 1)), (None, None))
        accepted = letter and Acceptances(objects).of(letter)
    if letter is None or whether is None:
        reader.check()
        return
    results_console().print(letter_details(letter, whether, accepted))
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
    data: Data = None,
) -> None:
    """Send dead letters to their functions again, when the cause is repaired.

    Each event is sent unchanged, byte by byte. If it is stored, the ledger counts it as stored; if
    it is refused again, it stays a dead letter and the exit status is 1. Letters that are already
    stored or accepted are not sent, unless you give their ID. Running it again is harmless.
    """
    if not (ids or everything or table or reason):
        raise SetupError("which dead letters? give IDs, --all, --table or --reason")
    from stampede.cli.running import running, settings_of
    from stampede.deadletters.accept import Acceptances
    from stampede.deadletters.display import replay_report
    from stampede.deadletters.reader import DeadLetterFilter, DeadLetterReader
    from stampede.deadletters.stored import NOTHING_STORED, stored_offsets

    system = running(data)
    sinks = sinks_of(system, sink, table)
    letter_filter = DeadLetterFilter(table, frozenset(ids) if ids else None, reason)
    with stored_alerts(data) as (objects, stored):
        reader = DeadLetterReader(objects, letter_filter)
        acceptances = None if ids else Acceptances(objects)
        known = NOTHING_STORED if ids else stored
        done = _replay(reader, sinks, known, acceptances, settings_of(system))
        status, lines = replay_report(done, stored_offsets(objects))
    results_console().print(*lines, sep="\n", soft_wrap=True)
    if done.complete:
        reader.check()
    sys.exit(status)


def _replay(
    reader: DeadLetterReader,
    sinks: dict[str, str],
    stored: StoredAlerts,
    acceptances: Acceptances | None,
    settings: Settings,
) -> Replayed:
    """Send the letters, with a progress bar."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from stampede.deadletters.replay import replay as replay_letters
    from stampede.runtime.signals import run_until_stopped

    columns = (TextColumn("replaying"), BarColumn(), TextColumn("{task.fields[counts]}"))
    with Progress(*columns, TimeElapsedColumn(), console=progress_console()) as bar:
        task = bar.add_task("", total=None, counts="")

        def progress(done: Replayed) -> None:
            counts = f"{done.accepted:,} accepted, {len(done.refused):,} refused again"
            bar.update(task, counts=counts)

        async def run(stop: asyncio.Event) -> Replayed:
            letters = reader.letters()
            return await replay_letters(
                letters, sinks, stored, settings, stop, progress, acceptances
            )

        return run_until_stopped(run)


def sinks_of(system: Running | None, sink: str | None, table: str | None) -> dict[str, str]:
    """The URL of the function that fills each table. Raises `SetupError` if none is known."""
    if sink:
        if not table:
            raise SetupError("--sink is the function of one table: say which with --table")
        if not sink.startswith(("http://", "https://")):
            raise SetupError(f"--sink is not an http(s) URL: {shown(sink)}")
        return {table: sink}
    if not system:
        raise SetupError(
            "no functions run here: start `stampede up`, set STAMPEDE_FUNCTIONS, or give --table "
            "and --sink URL"
        )
    return table_urls(system.urls)


@deadletters.command()
def accept(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="ids that `list` shows")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="all of them")] = False,
    table: TableName = None,
    reason: Annotated[
        str, typer.Option(metavar="TEXT", help="why they are rightly refused: it is recorded")
    ] = "",
    undo: Annotated[
        bool, typer.Option("--undo", help="withdraw what was accepted: they are refused again")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="count the letters, and record nothing")
    ] = False,
    data: Data = None,
) -> None:
    """Record that dead letters are rightly refused, as alerts that are not for this store.

    The ledger then counts them as accepted, and `doctor` does not warn of them. They stay until
    `purge --accepted`, and the ledger counts them after it too. A letter that comes later is not
    accepted. If one is stored after all, it counts as stored. Running it again is harmless.
    """
    if not (ids or everything or table):
        raise SetupError("which dead letters? give IDs, --all or --table; --reason selects none")
    from stampede.deadletters.accept import Acceptances, decide, select
    from stampede.deadletters.display import acceptance_report
    from stampede.deadletters.reader import DeadLetterFilter, DeadLetterReader

    with stored_alerts(data) as (objects, stored):
        letter_filter = DeadLetterFilter(table, frozenset(ids) if ids else None)
        reader = DeadLetterReader(objects, letter_filter)
        acceptances = Acceptances(objects)
        selected = select(stored.of(reader.letters()), acceptances, undo)
        if not dry_run:
            decide(objects, selected, acceptances, reason, undo)
    results_console().print(acceptance_report(selected, undo, dry_run), soft_wrap=True)
    reader.check()


@deadletters.command()
def purge(
    table: TableName = None,
    undecodable: Annotated[
        bool,
        typer.Option(
            "--undecodable",
            help="also those whose offsets are stored, but whose bytes cannot be decoded here",
        ),
    ] = False,
    accepted: Annotated[
        bool, typer.Option("--accepted", help="also those that are accepted as rightly refused")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="also those whose alerts are not stored")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="do not ask")] = False,
    data: Data = None,
) -> None:
    """Remove the dead letters whose alerts were stored since; with --all every one.

    An alert counts as stored if its offset is stored and the table has that very alert, so each
    letter is decoded. Letters that cannot be decoded stay, except with --undecodable or --all.

    With --accepted or --all, alerts that are not stored are lost. The ledger shows the offsets of
    accepted ones as accepted still, those of others as missing. A second site keeps its copies.
    """
    from stampede.deadletters.accept import Acceptances
    from stampede.deadletters.purge import purge as purge_letters
    from stampede.deadletters.reader import DeadLetterFilter, DeadLetterReader

    def goes(whether: Whether, is_accepted: bool) -> bool:
        return (
            everything
            or whether.stored
            or (undecodable and whether.undecodable)
            or (accepted and is_accepted)
        )

    with stored_alerts(data) as (objects, stored):
        reader = DeadLetterReader(objects, DeadLetterFilter(table))
        acceptances = Acceptances(objects)
        if (everything or undecodable or accepted) and not yes:
            confirm(reader, stored, acceptances, goes)
        choice = Removable(stored, acceptances, goes)
        done = purge_letters(objects, reader, choice)
    report_purge(done.removed, done.kept, choice.doubtful)
    reader.check()


class Removable:
    """Chooses the letters to remove, and counts the `doubtful` ones among those that stay.

    The offset of a doubtful letter is stored, but not its alert, as far as it can be decoded here.
    """

    def __init__(self, stored: StoredAlerts, acceptances: Acceptances, goes: Goes) -> None:
        self._stored, self._acceptances, self._goes = stored, acceptances, goes
        self.doubtful = 0

    def __call__(self, table: str, events: Sequence[Event]) -> list[bool]:
        """Whether to remove the letter of each event of a table."""
        from stampede.deadletters.dead_letter import name_of

        found = self._stored.of_events(table, events)
        accepted = [self._acceptances.has(table, name_of(table, event)) for event in events]
        going = [self._goes(*each) for each in zip(found, accepted, strict=True)]
        self.doubtful += sum(
            each.doubt is not None and not goes for each, goes in zip(found, going, strict=True)
        )
        return going


def report_purge(removed: int, kept: int, doubtful: int) -> None:
    """Print how many letters were removed and how many were kept, and why some look stored."""
    console = results_console()
    console.print(f"{counted(removed, 'dead letter')} removed, {kept:,} kept")
    if doubtful:
        console.print(
            f"the offsets of {doubtful:,} kept ones are stored, but not these alerts, as far as "
            "their bytes can be decoded here (do they need STAMPEDE_SCHEMA_REGISTRY?): "
            '`stampede deadletters list` marks them "offset only"',
            style="yellow",
            soft_wrap=True,
        )


def confirm(
    reader: DeadLetterReader, stored: StoredAlerts, acceptances: Acceptances, goes: Goes
) -> None:
    """Name what will be lost, and ask. Raises `typer.Abort` if the response is no."""
    going = lost = missing = 0
    for letter, whether in stored.of(reader.letters()):
        accepted = acceptances.of(letter) is not None
        if goes(whether, accepted):
            going += 1
            lost += not whether.stored
            missing += not (whether.stored or whether.doubt or accepted)
    typer.confirm(
        f"{counted(going, 'dead letter')}, {lost:,} of them not stored: these will "
        f"be lost, and the ledger will show {missing:,} of them as missing. Remove them?",
        abort=True,
        err=True,
    )


@contextmanager
def stored_alerts(data: Path | None) -> Iterator[tuple[Objects, StoredAlerts]]:
    """The store of the running system, or of the environment, and the alerts stored in it."""
    from stampede.cli.running import running, settings_of
    from stampede.deadletters.stored import StoredAlerts, stored_offsets
    from stampede.store.open import open_objects
    from stampede.telemetry.logs import configure_command_logs

    configure_command_logs()
    settings = settings_of(running(data))
    objects = open_objects(settings)
    with ExitStack() as started:

        @cache
        def check_of() -> AlertCheck:  # a list of letters that are not stored needs no decoder
            from stampede.handlers.audit.alert_check import alert_check

            return started.enter_context(alert_check(settings))

        yield (
            objects,
            StoredAlerts(stored_offsets(objects), lambda table, events: check_of()(table, events)),
        )
