"""What became of the alerts of an ingest: stored, or refused for which reasons."""

import re
from collections import Counter
from typing import NamedTuple

# What differs between alerts that are refused for one reason: the id of the object, which may be
# any text, and every word with a digit in it.
OWN = re.compile(r"(?<= of object ).*(?= at MJD )|\S*\d\S*", re.DOTALL)
MOST_KINDS = 100  # of refusals that are told apart


class Refusal(NamedTuple):
    """Alerts that were refused for reasons that differ in ids and numbers alone."""

    alerts: int
    tables: tuple[str, ...]
    name: str
    reason: str


class Tally:
    """Counts alerts, and keeps an example of each kind of refusal.

    Attributes
    ----------
    alerts
        How many were sent.
    refused
        How many of them at least one function refused.
    faults
        How many of those are no alerts, but parts of files that could not be read.
    """

    def __init__(self) -> None:
        self.alerts = self.refused = self.faults = 0
        self._counts: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._examples: dict[tuple[str, tuple[str, ...]], tuple[str, str]] = {}

    @property
    def stored(self) -> int:
        """How many every function accepted."""
        return self.alerts - self.refused

    def add(self, name: str, refusals: dict[str, str], fault: bool) -> None:
        """Count an alert; `refusals` are the reasons why it was refused, by table."""
        self.alerts += 1
        self.refused += bool(refusals)
        self.faults += fault
        for reason in dict.fromkeys(refusals.values()):
            tables = tuple(table for table, its in refusals.items() if its == reason)
            file = name.partition("[")[0]  # before the number of the record in it
            kind = OWN.sub("#", reason.replace(name, "").replace(file, "")), tables
            if kind not in self._counts and len(self._counts) >= MOST_KINDS:
                kind = "", tables
            self._counts[kind] += 1
            self._examples.setdefault(kind, (name, reason))

    def refusals(self) -> list[Refusal]:
        """The kinds of refusals, the most frequent first."""
        return [
            Refusal(count, kind[1], *self._examples[kind])
            for kind, count in self._counts.most_common()
        ]
