"""Reads parts of runs: the rows that are wanted, or why they cannot be believed."""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from stampede_client.errors import Damaged
from stampede_client.parquet_files import (
    PARQUET_ERRORS,
    Group,
    Unverified,
    footer_length,
    parse_footer,
    read_groups,
)
from stampede_client.runs import (
    Block,
    Coverage,
    Fault,
    Gap,
    Name,
    Offsets,
    Part,
    parse_part,
    unpack,
)

TAIL = 40 << 10
"""Bytes at the end of a file in which most footers lie."""

T = TypeVar("T")


class Opened(NamedTuple):
    """A part whose footer is verified, and its wanted rows if they have been read."""

    part: Part
    rows: pa.Table | None = None


class RunReader:
    """Reads parts of one table. Safe to share between threads.

    Parameters
    ----------
    keys
        The leading keys that are wanted, ascending; None for all.
    wanted
        Selects rows; None for all.
    columns
        Names of columns; None for all.
    """

    def __init__(
        self,
        filesystem: fs.FileSystem,
        table: str,
        keys: Sequence[Any] | None,
        wanted: pc.Expression | None,
        columns: Sequence[str] | None,
    ) -> None:
        self._filesystem, self._table = filesystem, table
        self._keys, self._wanted, self._columns = keys, wanted, columns
        self._known: dict[str, Coverage] = {}  # offsets, by the digest of their block

    def open(self, info: fs.FileInfo) -> Opened | Fault:
        """A part that is listed, with its rows if it is of level 0, or why it is none.

        Raises `FileNotFoundError`, `OSError`.
        """
        name = Name.parse(info.base_name)
        if name is None:
            raise ValueError(f"{info.path} does not have the name of a run")
        read = self._small if name.level == 0 else self._large
        try:
            return twice(lambda: read(name, info.path))
        except Unverified as error:
            return Fault(name, Gap(info.path, str(error)))

    def read(self, opened: Opened) -> tuple[Opened, list[Fault]]:
        """A part with its wanted rows, and what of them is damaged.

        Raises `FileNotFoundError`, `OSError`.
        """
        part = opened.part
        groups = part.holding(self._keys)
        try:
            with self._filesystem.open_input_file(part.path) as file:
                return Opened(part, self._rows(file, part, groups)), []
        except Unverified:
            pass
        # Once more from memory, so that a store that fails is no damage, and each row group alone.
        with self._filesystem.open_input_file(part.path) as file:
            data = file.read()
        tables, faults = [self._rows(pa.BufferReader(b""), part, [])], []
        for group in groups:
            try:
                tables.append(self._rows(pa.BufferReader(data), part, [group]))
            except Unverified as error:
                first = part.first if group.first is None else group.first
                last = part.last if group.last is None else group.last
                gap = Gap(part.path, f"row group {group.number}: {error}", first, last)
                faults.append(Fault(part.name, gap, part))
        return Opened(part, pa.concat_tables(tables)), faults

    def _small(self, name: Name, path: str) -> Opened:
        """A part of level 0: a few megabytes, which have the digest in their name."""
        with self._filesystem.open_input_file(path) as file:
            data = file.read()
        if sha256(data).hexdigest()[:32] != name.digest:
            raise Unverified("its bytes do not have the digest in its name")
        length = footer_length(data, len(data))
        footer = parse_footer(data[-8 - length : -8])
        offsets = self._offsets(lambda length, start: data[start:][:length])
        part = parse_part(self._table, name, path, len(data), footer, offsets)
        rows = self._rows(pa.BufferReader(data), part, part.holding(self._keys))
        return Opened(part, rows)

    def _large(self, name: Name, path: str) -> Opened:
        """A part of a merged run, of which only the footer is read."""
        with self._filesystem.open_input_file(path) as file:
            size = file.size()
            tail = _last_bytes(file, TAIL + size // 64, size)
            length = footer_length(tail, size)
            if length + 8 > len(tail):
                tail = _last_bytes(file, length + 8, size)
            footer = parse_footer(tail[-8 - length : -8])
            offsets = self._offsets(file.read_at)
            return Opened(parse_part(self._table, name, path, size, footer, offsets))

    def _offsets(self, read: Callable[[int, int], bytes]) -> Offsets:
        """Reads the block of a file, once for all parts that have the same."""

        def offsets(block: Block, start: int) -> Coverage:
            if block.digest not in self._known:
                data = read(block.length, start) if start > 0 < block.length else b""
                self._known[block.digest] = unpack(data, block.digest)
            return self._known[block.digest]

        return offsets

    def _rows(self, source: pa.NativeFile, part: Part, groups: Sequence[Group]) -> pa.Table:
        """The wanted rows of row groups. Raises `Unverified`."""
        schema = part.footer.schema
        names = [name for name in schema.names if self._columns is None or name in self._columns]
        if not groups:
            return pa.schema([schema.field(name) for name in names]).empty_table()
        rows = read_groups(source, part.footer, groups, names)
        try:
            return rows if self._wanted is None else rows.filter(self._wanted)
        except PARQUET_ERRORS as error:
            raise Unverified(f"it does not have the columns of its table: {error}") from None


def together(read: Sequence[Opened], columns: Sequence[str] | None) -> pa.Table:
    """The rows of parts that have been read; columns that a part does not have yet are null.

    Raises `Damaged` if they are not columns of one table.
    """
    # The longest schema has all columns: a version of Stampede only adds some at the end.
    schemas = (one.part.footer.schema for one in read)
    schema = max(schemas, key=len, default=pa.schema([]))
    if columns is not None:
        schema = pa.schema([field for field in schema if field.name in columns])
    tables = [one.rows for one in read if one.rows is not None]
    try:
        filled = pa.concat_tables([schema.empty_table(), *tables], promote_options="default")
        return filled.select(schema.names)
    except PARQUET_ERRORS as error:
        raise Damaged(f"the runs do not have the columns of one table: {error}") from None


def twice(read: Callable[[], T]) -> T:
    """The second response if the first is not right: the network may be to blame."""
    try:
        return read()
    except Unverified:
        return read()


def _last_bytes(file: pa.NativeFile, length: int, size: int) -> bytes:
    start = max(0, size - length)
    data: bytes = file.read_at(size - start, start)
    return data
