"""Runs: sorted immutable Parquet files, and what their names and footers say.

A run is one file, or several parts cut by ranges of the leading key. Keys sort by level, so a
listing, which goes on in key order, shows a run before any run it was merged into: rows that
move up while it is read are seen twice, never missed.
"""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from stampede.errors import StoreDown
from stampede.store.coverage import Coverage
from stampede.store.footers import Descriptions, metadata_of
from stampede.store.merge import TableSpec
from stampede.store.objects import ObjectInfo

# Rows per row group: what one lookup fetches and decodes, 60 to 140 KB in 0.2 ms.
GROUP_ROWS = 2000
_NAME = re.compile(r"(?P<level>\d{4})-(?P<digest>[0-9a-f]{32})(-(?P<part>\d+)of(?P<parts>\d+))?")


@dataclass(frozen=True)
class RunName:
    """What a run's key says: ``tables/<table>/<level>-<digest>[-<part>of<parts>].parquet``."""

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

    @classmethod
    def parse(cls, key: str) -> "RunName | None":
        """Read a key; None where it is not a run's."""
        found = _NAME.fullmatch(key.rpartition("/")[2].removesuffix(".parquet"))
        if not found:
            return None
        part, parts = int(found["part"] or 0), int(found["parts"] or 1)
        return cls(int(found["level"]), found["digest"], part, parts)


@dataclass(frozen=True, eq=False)
class RunInfo:
    """One part of a run as its key, its listing and its footer show it."""

    name: RunName
    object: ObjectInfo
    inputs: tuple[str, ...]
    coverage: Coverage
    rows: int
    first: int | str | None
    last: int | str | None

    @property
    def key(self) -> str:
        """Where the part lies in the store."""
        return self.object.key


@dataclass(frozen=True, eq=False)
class RunIndex:
    """The row groups of one part: all arrays of shape (row groups,).

    `firsts` and `lasts` are the least and greatest leading key, as `sortable` has them; `starts`
    and `ends` the bytes in the file; `rows` how many; `descriptions` what decoding them takes.
    """

    firsts: np.ndarray
    lasts: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    rows: np.ndarray
    descriptions: Descriptions

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        arrays = self.firsts.nbytes + self.lasts.nbytes + 3 * self.rows.nbytes
        return arrays + self.descriptions.nbytes

    def groups(self, wanted: np.ndarray) -> np.ndarray:
        """Numbers of the row groups that may hold any of `wanted`, which is sorted."""
        low = np.searchsorted(wanted, self.firsts, side="left")
        high = np.searchsorted(wanted, self.lasts, side="right")
        return np.flatnonzero(low < high)


def prefix(table: str) -> str:
    """Where the runs of a table lie."""
    return f"tables/{table}/"


def digest(*parts: bytes | str | pa.Buffer) -> str:
    """The first half of the SHA-256, hex, as in every name of the store.

    SHA-256, as S3's signature wants that of what is put: `Pack` keeps it for both.
    """
    state = sha256()
    for part in parts:
        state.update(part.encode() if isinstance(part, str) else part)
    return state.hexdigest()[:32]


def sortable(values: Sequence, spec: TableSpec) -> np.ndarray:
    """Leading keys for numpy to sort and search: int64, or UTF-8 bytes, as Parquet sorts.

    numpy drops a string's trailing NULs. That keeps order, so a search may find a row group too
    many, never one too few.
    """
    if pa.types.is_string(spec.schema.field(spec.leading).type):
        return np.array([value.encode() for value in values] or [b""], np.bytes_)[: len(values)]
    return np.array(values, np.int64)


class RunWriter:
    """Writes one part of a run into memory."""

    def __init__(self, spec: TableSpec) -> None:
        self.rows = 0
        self._ends: list[int | str] = []
        self._leading = spec.leading
        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink,
            spec.schema.remove_metadata(),
            version="2.6",
            compression="LZ4",
            # Numbers hardly repeat, and a dictionary would take -0.0 for 0.0.
            use_dictionary=[f.name for f in spec.schema if pa.types.is_string(f.type)],
            write_statistics=[spec.leading],
            store_schema=False,
        )

    def add(self, rows: pa.Table) -> None:
        """Append rows that sort after all before them."""
        if rows.num_rows:
            self._writer.write_table(rows, row_group_size=GROUP_ROWS)
            self.rows += rows.num_rows
            leading = rows[self._leading]
            self._ends = [*self._ends[:1], leading[0].as_py(), leading[-1].as_py()]

    def close(self, level: int, inputs: Sequence[str], coverage: Coverage) -> pa.Buffer:
        """Write the footer; the file's bytes."""
        said = {
            "level": level,
            "inputs": list(inputs),
            "rows": self.rows,
            "first": self._ends[0] if self._ends else None,
            "last": self._ends[-1] if self._ends else None,
        }
        footer = {f"stampede.{name}": json.dumps(value) for name, value in said.items()}
        self._writer.add_key_value_metadata(footer | {"stampede.coverage": coverage.to_json()})
        self._writer.close()
        return self._sink.getvalue()


def parse_footer(metadata: pq.FileMetaData, info: ObjectInfo) -> RunInfo:
    """What a part's footer says. Raises `StoreDown` where the object is not a run."""
    name = RunName.parse(info.key)
    try:
        said = {key: json.loads(metadata.metadata[b"stampede." + key]) for key in _SAID}
        coverage = Coverage.from_json(metadata.metadata[b"stampede.coverage"])
    except (KeyError, TypeError, ValueError):
        raise StoreDown(f"{info.key} has not the footer of a run") from None
    if name is None:
        raise StoreDown(f"{info.key} has not the name of a run")
    return RunInfo(
        name,
        info,
        tuple(said[b"inputs"]),
        coverage,
        said[b"rows"],
        said[b"first"],
        said[b"last"],
    )


_SAID = (b"inputs", b"rows", b"first", b"last")


def parse_index(footer: bytes, spec: TableSpec) -> RunIndex:
    """Where a part's row groups lie and which leading keys they hold.

    Raises `pa.ArrowException` or `OSError` where it is not the footer of Parquet.
    """
    metadata = metadata_of(footer)
    firsts, lasts, places = [], [], []
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        head, tail = group.column(0), group.column(metadata.num_columns - 1)
        statistics = head.statistics
        firsts.append(statistics.min)
        lasts.append(statistics.max)
        start = head.dictionary_page_offset or head.data_page_offset
        end = (tail.dictionary_page_offset or tail.data_page_offset) + tail.total_compressed_size
        places.append((start, end, group.num_rows))
    starts, ends, rows = np.array(places, np.int64).reshape(-1, 3).T
    return RunIndex(
        sortable(firsts, spec),
        sortable(lasts, spec),
        starts,
        ends,
        rows,
        Descriptions(footer, metadata),
    )
