"""Runs: sorted immutable Parquet files, their names, and which of them are live.

A run is one file, or several parts cut by ranges of the leading key. Keys sort by level and a
listing is in key order. So a listing shows a run before any run that it was merged into: rows that
move up during a listing are seen twice, never missed.
"""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import sha256

import pyarrow as pa

from stampede.store.objects.object_store import ObjectInfo
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.bloom_filters import Filter
from stampede.store.runs.index_sections import Sections

_NAME = re.compile(
    r"(?P<level>\d{4})-(?P<digest>[0-9a-f]{32})(-(?P<part>\d+)of(?P<parts>\d+))?\.parquet"
)

_MOST_PARTS = 100_000


@dataclass(frozen=True)
class RunName:
    """A run's key in pieces: ``tables/<table>/<level>-<digest>[-<part>of<parts>].parquet``."""

    level: int
    digest: str
    part: int = 0
    parts: int = 1

    @property
    def run(self) -> str:
        """The name of the whole run, without the part: what `RunInfo.inputs` lists."""
        return f"{self.level:04}-{self.digest}"

    def key(self, table: str) -> str:
        """Where the part lies in the store."""
        part = f"-{self.part}of{self.parts}" if self.parts > 1 else ""
        return f"{prefix(table)}{self.run}{part}.parquet"

    @property
    def whole(self) -> "RunName":
        """The name of the first part of this run: the same for all its parts."""
        return replace(self, part=0)

    def keys(self, table: str) -> list[str]:
        """Where all parts of the run lie in the store."""
        return [replace(self, part=number).key(table) for number in range(self.parts)]

    @classmethod
    def merged(
        cls, level: int, inputs: Sequence[str], cuts: str, part: int, parts: int
    ) -> "RunName":
        """The name of a part of a merged run: the digest of its inputs' names and of its cuts."""
        return cls(level, digest(json.dumps([list(inputs), cuts])), part, parts)

    @classmethod
    def parse(cls, key: str) -> "RunName | None":
        """The name in a key; None if the key is not that of a run."""
        name = _NAME.fullmatch(key.rpartition("/")[2])
        if not name:
            return None
        part, parts = int(name["part"] or 0), int(name["parts"] or 1)
        made = cls(int(name["level"]), name["digest"], part, parts)
        # A foreign key such as `...-0of1` or `...-00of8` must not count as a part of a run.
        written_so = made.key("").endswith(f"/{name[0]}")
        return made if written_so and part < parts <= _MOST_PARTS else None


@dataclass(frozen=True, eq=False)
class RunInfo:
    """One part of a run: what its key, its listing and its footer show.

    `filter` is that of all its keys, if it has few; a large part has `sections`, each with its own.
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

    @property
    def key(self) -> str:
        """Where the part lies in the store."""
        return self.object.key

    def age(self, now: datetime) -> timedelta:
        """Time since the part was written."""
        return now - self.object.modified


Run = tuple[RunInfo, ...]  # all parts of one run, in key order


def prefix(table: str) -> str:
    """Where the runs of a table lie."""
    return f"tables/{table}/"


def digest(*pieces: bytes | str | pa.Buffer) -> str:
    """The first half of the SHA-256, in hexadecimal, as in every name of the store.

    SHA-256, because S3's signature needs that of every PUT: `Pack` uses one digest for both.
    """
    state = sha256()
    for piece in pieces:
        state.update(piece.encode() if isinstance(piece, str) else piece)
    return name_of(state.hexdigest())


def name_of(sha256_hex: str) -> str:
    """What `digest` makes of a whole SHA-256, in hexadecimal."""
    return sha256_hex[:32]


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


def inputs_of(runs: Iterable[Run]) -> set[str]:
    """Names of all runs that `runs` were merged from."""
    return {name for run in runs for name in run[0].inputs}


def live(parts: Iterable[RunInfo]) -> list[Run]:
    """The complete runs among `parts` that are input of no complete run."""
    complete_runs = complete(parts)
    superseded = inputs_of(complete_runs)
    return [run for run in complete_runs if run[0].name.run not in superseded]
