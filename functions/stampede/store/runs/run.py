"""Runs: sorted immutable Parquet files, and which of them are live.

A run is one file, or several parts cut by ranges of the leading key. Keys sort by level and a
listing is in key order. So a listing shows a run before any run that it was merged into: rows that
move up during a listing are seen twice, never missed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from stampede.store.objects.object_store import ObjectInfo
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.bloom_filters import Filter
from stampede.store.runs.index_sections import Sections
from stampede.store.runs.run_name import RunName


@dataclass(frozen=True, eq=False)
class RunInfo:
    """One part of a run: what its key, its listing and its footer show.

    `filter` is that of all its keys, if it has few; a large part has `sections`, each with its own.
    A start leaves those of large runs unread: `sections_in` is the key of the object that has them.
    """

    name: RunName
    object: ObjectInfo
    inputs: tuple[str, ...]
    coverage: Coverage
    rows: int
    first: int | str | None
    last: int | str | None
    body_crc32: str | None = None
    filter: Filter | None = None
    sections: Sections | None = None
    sections_in: str | None = None

    @property
    def key(self) -> str:
        """Where the part lies in the store."""
        return self.object.key

    def age(self, now: datetime) -> timedelta:
        """Time since the part was written."""
        return now - self.object.modified


Run = tuple[RunInfo, ...]  # all parts of one run, in key order


def by_name(parts: Iterable[RunInfo]) -> list[Run]:
    """The runs, complete or not, that have any part in `parts`."""
    runs: dict[RunName, list[RunInfo]] = {}
    for part in parts:
        runs.setdefault(part.name.whole, []).append(part)
    return [tuple(sorted(run, key=lambda part: part.name.part)) for run in runs.values()]


def complete(parts: Iterable[RunInfo]) -> list[Run]:
    """The runs that have all their parts in `parts`."""
    return [run for run in by_name(parts) if len(run) == run[0].name.parts]


def incomplete(parts: Iterable[RunInfo]) -> list[Run]:
    """The runs of which a part is not in `parts`: half-written, or a part was lost."""
    return [run for run in by_name(parts) if len(run) < run[0].name.parts]


def unlisted(run: Run, table: str) -> list[str]:
    """The keys of the parts that an incomplete run lacks."""
    there = {part.key for part in run}
    return [key for key in run[0].name.keys(table) if key not in there]


def inputs_of(runs: Iterable[Sequence[RunInfo]]) -> set[str]:
    """Names of all runs that `runs` were merged from."""
    return {name for run in runs for name in run[0].inputs}


def live(parts: Iterable[RunInfo]) -> list[Run]:
    """The complete runs among `parts` that are input of no complete run."""
    complete_runs = complete(parts)
    superseded = inputs_of(complete_runs)
    return [run for run in complete_runs if run[0].name.run not in superseded]
