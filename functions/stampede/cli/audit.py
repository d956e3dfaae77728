"""`stampede audit`: prove that nothing is missing, or name what is."""

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.options import DATA, Data, results_console
from stampede.errors import StoreDown

if TYPE_CHECKING:
    from rich.console import Console

    from stampede.settings import Settings
    from stampede.store.ledger import Entry


class AuditedStore(StrEnum):
    """Which store is asked."""

    STORE = "store"
    REPLICA = "replica"


def audit(
    topics: Annotated[
        list[str] | None, typer.Argument(help="topics; without any, all that the store knows of")
    ] = None,
    site: Annotated[
        AuditedStore,
        typer.Option(help="the store itself, or the second site, held against the store too"),
    ] = AuditedStore.STORE,
    data: Data = DATA,
) -> None:
    """Prove that every offset of a topic is stored or dead-lettered, in both tables.

    What is missing is named, and the exit status is then 1. Asks the `stampede up` that is
    running, or what STAMPEDE_STORE, STAMPEDE_REPLICA and STAMPEDE_KAFKA say.
    """
    from stampede.cli.running import running, settings_of

    found = running(data.absolute())
    settings = settings_of(found)
    everything = not topics
    if everything and found and settings.topics:
        topics = settings.topics.split(",")
    if site is AuditedStore.REPLICA:
        sys.exit(_audit_replica(settings, topics or [], everything, results_console()))
    sys.exit(report(entries_of(settings, topics or [], everything), results_console()))


def _audit_replica(
    settings: "Settings", topics: list[str], everything: bool, console: "Console"
) -> int:
    from stampede.functions.audit import audit as prove
    from stampede.functions.audit import lacks
    from stampede.functions.replicate import make_replica

    replica = make_replica(settings)
    first, second, lacking = replica.source, replica.target, []
    try:
        # Of the second site last: what it got meanwhile is not missing.
        lacking = lacks(replica.missing())
        entries = prove(first, settings, topics, everything, second)
    except StoreDown as error:
        entries = prove(second, settings, topics, everything)  # raises if it is this one
        console.print("the first site does not answer; the second proves by itself:")
        console.print(error.message, style="yellow", highlight=False, soft_wrap=True)
    finally:
        replica.close()
    status = report(entries, console, ends=True)
    for lack in lacking:
        more = ", …" if lack.objects > len(lack.some) else ""
        console.print(
            f"not there yet: {lack.objects:,} of {lack.kind}/, {lack.bytes / 1e6:,.1f} MB: "
            f"{', '.join(lack.some)}{more}",
            style="bold red",
            highlight=False,
            soft_wrap=True,
        )
    return 1 if lacking else status


def entries_of(settings: "Settings", topics: list[str], everything: bool = False) -> "list[Entry]":
    """The ledger of these topics, or of all that the store knows besides."""
    from stampede.functions.audit import audit as prove
    from stampede.store.open import open_objects

    return prove(open_objects(settings), settings, topics, everything)


def report(entries: "list[Entry]", console: "Console", ends: bool = False) -> int:
    """Print the ledger, with `ends` also from which offset on it lacks any; the exit status."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    headings = ["table", "topic", "partition", "received", "stored", "dead letters", "missing"]
    for heading in (*headings, *(["complete below"] if ends else [])):
        table.add_column(heading, justify="left" if heading in ("table", "topic") else "right")
    for entry in entries:
        table.add_row(
            entry.table,
            entry.topic,
            str(entry.partition),
            f"{entry.high - entry.low:,}",
            f"{entry.stored:,}",
            f"{entry.dead_lettered:,}",
            f"{entry.missing_count:,}",
            *([f"{entry.missing[0][0] if entry.missing else entry.high:,}"] if ends else []),
            style="bold red" if entry.missing else "",
        )
    console.print(table)
    for entry in entries:
        for low, high in entry.missing[:20]:
            console.print(
                f"missing from {entry.table}: {entry.topic} partition {entry.partition}, "
                f"offsets {low:,} to {high - 1:,}",
                style="bold red",
                highlight=False,
            )
    missing = sum(entry.missing_count for entry in entries)
    if missing:
        console.print(f"{missing:,} offsets are neither stored nor dead letters", style="bold red")
        return 1
    if not any(entry.high > entry.low for entry in entries):
        console.print("nothing was received yet, so nothing is missing")
        return 0
    console.print("nothing is missing", style="green")
    return 0
