"""`stampede audit`: prove that nothing is missing, or name what is missing."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from stampede.cli.options import DATA, Data, results_console
from stampede.errors import SetupError, StoreDown

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from stampede.functions.audit import MissingObjects
    from stampede.settings import Settings
    from stampede.store.ledger import Entry


MOST_FAULTS = 20


class AuditedStore(StrEnum):
    """The store to audit."""

    STORE = "store"
    REPLICA = "replica"
    BOTH = "both"


def audit(
    topics: Annotated[
        list[str] | None, typer.Argument(help="topics; without any, all that the store knows")
    ] = None,
    site: Annotated[
        AuditedStore,
        typer.Option(help="the store itself, or the second site, compared with the store too"),
    ] = AuditedStore.STORE,
    deep: Annotated[
        bool, typer.Option("--deep", help="read every object, and check every reference")
    ] = False,
    repair: Annotated[
        bool, typer.Option("--repair", help="with --deep: restore from the other site")
    ] = False,
    data: Data = DATA,
) -> None:
    """Prove that every offset of a topic is stored or dead-lettered, in both tables.

    If anything is missing or not what Kafka has, it is named and the exit status is 1. What Kafka
    has received and the source has not delivered yet is in flight, and not missing. Reads the
    `stampede up` that is running, or what STAMPEDE_STORE, STAMPEDE_REPLICA and STAMPEDE_KAFKA name.

    With `--deep` every object is read to its end instead: each against its name and checksums, each
    row that locates an image against the pack. With `--repair` what is damaged or lost at one site
    is restored from the other. The exit status is 1 if anything is left.
    """
    from stampede.cli.object_reports import report_deep, report_objects
    from stampede.cli.running import running, settings_of

    system = running(data.absolute())
    settings = settings_of(system)
    if deep:
        names = ["store", "replica"] if site is AuditedStore.BOTH else [site.value]
        sys.exit(report_deep(settings, names, repair, results_console()))
    if repair or site is AuditedStore.BOTH:
        raise SetupError("`--repair` and `--site both` need `--deep`")
    everything = not topics
    if everything and system and settings.topics:
        topics = settings.topics.split(",")
    if site is AuditedStore.REPLICA:
        sys.exit(_audit_replica(settings, topics or [], everything, results_console()))
    entries = entries_of(settings, topics or [], everything, compare=True)
    status = report(entries, results_console())
    sys.exit(max(status, report_objects(settings, results_console())))


def _audit_replica(
    settings: Settings, topics: list[str], everything: bool, console: Console
) -> int:
    """Print the ledger of the second site and the objects it lacks; return the exit status."""
    from stampede.functions.alert_check import alert_check
    from stampede.functions.audit import audit as audit_topics
    from stampede.functions.audit import missing_by_kind
    from stampede.functions.replicate import make_replica

    missing: list[MissingObjects] = []
    replica = make_replica(settings)
    first, second = replica.source, replica.target
    try:
        with alert_check(replica_settings(settings)) as check:
            try:
                # Read the ledger of the second site last: what was copied meanwhile is not missing.
                missing = missing_by_kind(replica.missing())
                entries = audit_topics(first, settings, topics, everything, second, check)
            except StoreDown as error:
                # This raises an error if the second site is down too.
                entries = audit_topics(second, settings, topics, everything, None, check)
                console.print("the first site does not answer; the second proves by itself:")
                console.print(error.message, style="yellow", highlight=False, soft_wrap=True)
    finally:
        replica.close()
    status = report(entries, console, ends=True)
    for each in missing:
        more = ", …" if each.objects > len(each.examples) else ""
        console.print(
            f"not there yet: {each.objects:,} of {each.kind}/, {each.bytes / 1e6:,.1f} MB: "
            f"{', '.join(each.examples)}{more}",
            style="bold red",
            highlight=False,
            soft_wrap=True,
        )
    return 1 if missing else status


def entries_of(
    settings: Settings, topics: list[str], everything: bool = False, compare: bool = False
) -> list[Entry]:
    """The ledger's entries for these topics; with `everything` for all that the store knows.

    With `compare` samples of what Kafka has are compared with the store, alert by alert.
    """
    from stampede.functions.alert_check import alert_check
    from stampede.functions.audit import audit as audit_topics
    from stampede.store.open import open_objects

    with alert_check(settings) as check:
        return audit_topics(
            open_objects(settings), settings, topics, everything, None, check if compare else None
        )


def replica_settings(settings: Settings) -> Settings:
    """Settings whose store is the second site."""
    return settings.model_copy(
        update={
            "store": settings.replica,
            "access_key": settings.replica_access_key,
            "secret_key": settings.replica_secret_key,
            "region": settings.replica_region,
            "ca_file": settings.replica_ca_file,
        }
    )


def report(entries: list[Entry], console: Console, ends: bool = False) -> int:
    """Print the ledger and what is missing; return the exit status.

    With `ends` each line also has the offset below which nothing is missing.
    """
    console.print(_table(entries, ends))
    named = list(zip(_names(entries), entries, strict=True))
    for name, entry in named:
        for low, high in entry.missing[:20]:
            console.print(
                f"missing from {entry.table}: {name} partition {entry.partition}, "
                f"offsets {low:,} to {high - 1:,}",
                style="bold red",
                highlight=False,
            )
    faulty = [(name, entry, fault) for name, entry in named for fault in entry.faults]
    for name, entry, fault in faulty[:MOST_FAULTS]:
        console.print(
            f"{entry.table}: {name} partition {entry.partition}: {fault}",
            style="bold red",
            highlight=False,
            soft_wrap=True,
        )
    if len(faulty) > MOST_FAULTS:
        console.print(f"… and {len(faulty) - MOST_FAULTS:,} more", style="bold red")
    for note in dict.fromkeys(f"{name}: {n}" for name, entry in named for n in entry.notes):
        console.print(note, style="yellow", highlight=False, soft_wrap=True)
    missing = sum(entry.missing_count for entry in entries)
    in_flight = sum(entry.in_flight_count for entry in entries)
    if missing:
        console.print(f"{missing:,} offsets are neither stored nor dead letters", style="bold red")
    if in_flight:
        console.print(
            f"{in_flight:,} offsets are in flight: Kafka has them, and the source has not yet "
            "delivered them"
        )
    if missing or faulty:
        return 1
    if in_flight:
        console.print("none before them is missing", style="green")
        return 0
    if not any(entry.high > entry.low for entry in entries):
        console.print("nothing was received yet, so nothing is missing")
        return 0
    console.print("nothing is missing", style="green")
    return 0


def _table(entries: list[Entry], ends: bool) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    headings = ["table", "topic", "partition", "received", "stored", "dead letters", "missing"]
    in_flight = any(entry.in_flight for entry in entries)
    more = ["in flight"] * in_flight + ["complete below"] * ends
    for heading in (*headings, *more):
        table.add_column(heading, justify="left" if heading in ("table", "topic") else "right")
    for name, entry in zip(_names(entries), entries, strict=True):
        table.add_row(
            entry.table,
            name,
            str(entry.partition),
            f"{entry.received:,}",
            f"{entry.stored:,}",
            f"{entry.dead_lettered:,}",
            f"{entry.missing_count:,}",
            *([f"{entry.in_flight_count:,}"] if in_flight else []),
            *([f"{_complete_below(entry):,}"] if ends else []),
            style="bold red" if entry.missing or entry.faults else "",
        )
    return table


def _names(entries: list[Entry]) -> list[str]:
    """The topic of each entry; with its id if there are several topics of this name."""
    ids: dict[str, set[str | None]] = {}
    for entry in entries:
        ids.setdefault(entry.topic, set()).add(entry.topic_id)
    return [
        f"{entry.topic}@{entry.topic_id or '?'}" if len(ids[entry.topic]) > 1 else entry.topic
        for entry in entries
    ]


def _complete_below(entry: Entry) -> int:
    """The first offset that is neither stored nor a dead letter."""
    return min([span[0] for span in (*entry.missing, *entry.in_flight)], default=entry.high)
