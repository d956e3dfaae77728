"""`stampede ingest`: store alerts from disk, in place of Kafka."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.audit import entries_of
from stampede.cli.options import DATA, Data, progress_console, results_console
from stampede.cli.reports.ledger_report import report
from stampede.config.topics import Topics
from stampede.errors import SetupError
from stampede.runtime.counts import counted

if TYPE_CHECKING:
    from asyncio import Event
    from contextlib import AbstractContextManager

    from rich.console import Console
    from rich.text import Text

    from stampede.cli.running import Running
    from stampede.ingest.send import Ingested

NAMED = 3  # paths named in a line


def ingest(
    paths: Annotated[
        list[Path],
        typer.Argument(
            help="files, folders and archives of alerts: .avro, .tar, .zip, also compressed "
            "(.gz, .bz2, .xz), one alert in a file or many, archives within folders and archives"
        ),
    ],
    data: Data = None,
    store: Annotated[
        str | None,
        typer.Option(
            help="with no `stampede up` running: where to store, as for `up`; "
            "without it STAMPEDE_STORE, or a local Ceph"
        ),
    ] = None,
) -> None:
    """Store alerts from disk, in place of Kafka; then prove that each is stored.

    Uses the `stampede up` that is running, or starts the functions for as long as it takes.

    In a folder, files are chosen by the ends of their names; a file that you name is read whatever
    its name is. What is in a file decides how it is read. Links, devices and pipes in a folder are
    left out and named.

    The content of the files stands for a topic of Kafka, "files-" and a digest, and the place of an
    alert in it for its offset. So the same content again, under any name, is the same alerts:
    running it again is harmless, and continues an ingest that was stopped.

    What a function refuses becomes a dead letter, with its file and position and the reason, and so
    does what cannot be read: of a file that is cut off, the alerts before that are stored, and the
    rest is one dead letter. So is a block of an Avro container that does not end in its sync
    marker, because any record in it may be damaged. `stampede deadletters list` shows them.

    Exits with 1 if any alert is missing afterwards, a file could not be read to its end, a link, a
    device or a pipe was left out, or not one alert could be stored.
    """
    from stampede.cli.running import running
    from stampede.config.settings import Settings
    from stampede.ingest import files
    from stampede.telemetry.logs import configure_command_logs

    configure_command_logs("dead-lettered")
    files.find(paths)  # raises before anything is started
    console = progress_console()
    if system := running(data or (DATA if store else None)):
        if store not in (None, system.settings.store):
            raise SetupError(
                f"a `stampede up` runs here and stores into {system.settings.store}, not {store}: "
                "leave out --store, or choose another directory with --data"
            )
        sys.exit(_ingest(paths, system, console, "stampede deadletters list"))
    named = Settings()  # as for other commands, such as `deadletters list` afterwards
    if store is None and not data and "store" in named.model_fields_set:
        store = named.store
    with temporary_system(data or DATA, store, console) as system:
        how = f"STAMPEDE_STORE={store} stampede deadletters list"
        if not store:
            how = "stampede up, then stampede deadletters list"
        sys.exit(_ingest(paths, system, console, how))


def temporary_system(
    data: Path, store: str | None, console: Console
) -> AbstractContextManager[Running]:
    """The functions, started on this machine on entering and stopped on leaving.

    Raises `SetupError` if the package that starts them, `stampede_local`, is not installed.
    """
    from importlib.metadata import entry_points

    for point in entry_points(group="stampede.temporary_system"):
        system: AbstractContextManager[Running] = point.load()(data, store, console)
        return system
    raise SetupError("no functions run here: set STAMPEDE_FUNCTIONS to their URLs")


def _ingest(paths: list[Path], system: Running, console: Console, to_list: str) -> int:
    """Store the alerts, print what became of them, and the ledger; return the exit status.

    `to_list` is the command that lists the dead letters.
    """
    from stampede.ingest import files

    done = _send(paths, system, console)
    if not done.complete:
        console.print(
            f"stopped after {counted(done.tally.alerts, 'alert')}; run the same again to store the "
            "rest: "
            "what is stored stays, and is not stored twice"
        )
        return 130
    results = results_console()
    for line in summary(paths, done):
        results.print(line, soft_wrap=True)
    status = report(entries_of(system.settings, Topics((done.topic,))), results)
    tally = done.tally
    if tally.refused:
        results.print(
            f"{counted(tally.refused, 'dead letter')}, with bytes and reason: {to_list}",
            style="yellow",
            highlight=False,
            soft_wrap=True,
        )
    lacks = tally.faults or not tally.stored or files.left_out(paths).no_files
    return status or (1 if lacks else 0)


def summary(paths: list[Path], done: Ingested) -> list[Text]:
    """What became of the alerts, with the reasons of all refusals and an example of each."""
    from stampede.deadletters.display import text
    from stampede.ingest import files

    tally = done.tally
    given = ", ".join(map(str, paths[:NAMED])) + (", …" if len(paths) > NAMED else "")
    lines = [text(f"{given}: {done.topic}")]
    left_out = files.left_out(paths)
    if others := left_out.others:
        examples = ", ".join(map(str, others[:NAMED]))
        lines.append(text(f"{counted(others, 'other file')} left out, for example {examples}"))
    if no_files := left_out.no_files:
        examples = ", ".join(map(str, no_files[:NAMED]))
        lines.append(
            text(
                f"{counted(no_files, 'link')}, devices or pipes left out, for example {examples}: "
                "`ingest` follows links that you name, and reads files alone",
                "bold red",
            )
        )
    lines.append(
        text(
            f"{counted(tally.alerts, 'alert')}: {tally.stored:,} stored, {tally.refused:,} refused"
        )
    )
    for refusal in tally.refusals():
        for_example = "for example " if refusal.alerts > 1 else ""
        lines.append(
            text(
                f"  {refusal.alerts:,} refused by {' and '.join(refusal.tables)}: {for_example}"
                f"{refusal.name}: {refusal.reason}",
                "yellow",
            )
        )
    if tally.faults:
        lines.append(
            text(f"{tally.faults:,} of them are parts of files that cannot be read", "bold red")
        )
    return lines


def _send(paths: list[Path], system: Running, console: Console) -> Ingested:
    """Send the alerts to the functions, with a progress bar."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from stampede.ingest.send import Progress as Sent
    from stampede.ingest.send import alert_sinks
    from stampede.ingest.send import ingest as send_alerts
    from stampede.runtime.signals import run_until_stopped
    from stampede.store.open import open_objects

    objects, sinks = open_objects(system.settings), alert_sinks(system.urls)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[text]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as bar:
        task = bar.add_task("reading", total=None, text="")

        def progress(sent: Sent) -> None:
            if sent.alerts:
                bar.update(task, description="ingesting", text=f"{counted(sent.alerts, 'alert')}")
            else:
                bar.update(task, text=f"{sent.bytes_digested / 1e6:,.0f} MB")

        async def send(stop: Event) -> Ingested:
            return await send_alerts(paths, sinks, objects, system.settings, stop, progress)

        return run_until_stopped(send)
