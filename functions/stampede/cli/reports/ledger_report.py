"""What `stampede audit` prints of the ledger, and of what histories know beyond it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from stampede.runtime.counts import are, counted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console
    from rich.table import Table

    from stampede.handlers.histories.missing import Group
    from stampede.store.integrity.ledger import Entry

MOST_FAULTS = 20
MOST_GROUPS, MOST_IDS = 40, 4
"""Visits and detectors that are printed, those of which most is missing first, and ids of each."""


class HistoriesReport(NamedTuple):
    """Detections that never came as an alert of their own.

    Attributes
    ----------
    groups
        By night, visit, detector and cause; all, or those that are unexplained.
    totals
        How many there are of each survey and cause.
    """

    groups: list[Group]
    totals: Counter[tuple[str, str]]

    @classmethod
    def of(cls, groups: Iterable[Group], explained: bool) -> HistoriesReport:
        """A report of these groups.

        Explained ones are kept if wanted: with a cut every detector of every visit has one.
        """
        made = cls([], Counter())
        for group in groups:
            if explained or group.cause == "unexplained":
                made.groups.append(group)
            made.totals[group.survey, group.cause.value] += group.missing
        return made

    @property
    def unexplained(self) -> list[Group]:
        """The groups without a likely cause, those of which most is missing first."""
        found = [group for group in self.groups if group.cause == "unexplained"]
        return sorted(found, key=lambda group: (-group.missing, group.came, group.night))


def report(entries: list[Entry], console: Console, ends: bool = False) -> int:
    """Print the ledger and what is missing; return the exit status.

    With `ends` each line also has the offset below which nothing is missing.
    """
    console.print(_table(entries, ends))
    named = list(zip(_names(entries), entries, strict=True))
    _print_missing(named, console)
    _print_faults(named, console)
    for note in dict.fromkeys(f"{name}: {n}" for name, entry in named for n in entry.notes):
        console.print(note, style="yellow", highlight=False, soft_wrap=True)
    _print_summary(entries, console)
    return status_of(entries)


def report_histories(found: HistoriesReport, console: Console) -> None:
    """Print what never came as an alert of its own: by cause, then what is unexplained."""
    from rich.table import Table

    for (survey, cause), count in sorted(found.totals.items()):
        console.print(
            f"{survey}: {counted(count, 'detection')} never came as an alert: {cause}",
            highlight=False,
        )
    if not (worst := found.unexplained):
        console.print("no detection of a history is missing without a cause", style="green")
        return
    table = Table("night", "survey", "visit", "detector", "missing", "came", "alert ids")
    for group in worst[:MOST_GROUPS]:
        ids = [*map(str, group.ids[:MOST_IDS]), *["…"][: len(group.ids) > MOST_IDS]]
        place = [str(group.night), group.survey, str(group.visit), str(group.detector)]
        table.add_row(*place, f"{group.missing:,}", f"{group.came:,}", ", ".join(ids))
    console.print(table)
    if len(worst) > MOST_GROUPS:
        console.print(f"… and {len(worst) - MOST_GROUPS:,} more; --json has all", style="bold red")


def status_of(entries: list[Entry]) -> int:
    """The exit status: 1 if anything is missing, or is not what Kafka has."""
    return 1 if any(entry.missing or entry.faults for entry in entries) else 0


def _print_missing(named: list[tuple[str, Entry]], console: Console) -> None:
    """Print the first spans of offsets that are missing from each partition."""
    for name, entry in named:
        for low, high in entry.missing[:20]:
            console.print(
                f"missing from {entry.table}: {name} partition {entry.partition}, "
                f"offsets {low:,} to {high - 1:,}",
                style="bold red",
                highlight=False,
            )


def _print_faults(named: list[tuple[str, Entry]], console: Console) -> None:
    """Print the first faults, and how many more there are."""
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


def _print_summary(entries: list[Entry], console: Console) -> None:
    """Print how many offsets are missing or in flight, or that none is missing."""
    missing = sum(entry.missing_count for entry in entries)
    in_flight = sum(entry.in_flight_count for entry in entries)
    if missing:
        console.print(
            f"{counted(missing, 'offset')} {are(missing)} neither stored nor dead letters",
            style="bold red",
        )
    if in_flight:
        console.print(
            f"{counted(in_flight, 'offset')} {are(in_flight)} in flight: Kafka has them, and the "
            "source has not yet "
            "delivered them"
        )
    if status_of(entries):
        return
    if in_flight:
        console.print("none before them is missing", style="green")
    elif not any(entry.high > entry.low for entry in entries):
        console.print("nothing was received yet, so nothing is missing")
    else:
        console.print("nothing is missing", style="green")


def _table(entries: list[Entry], ends: bool) -> Table:
    from rich.table import Table

    from stampede.store.integrity.ledger import letters_in_words

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
            letters_in_words(entry.dead_lettered, entry.accepted),
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
