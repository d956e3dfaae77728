"""Reading runs: footers and row groups by ranged GETs, the last used kept in memory."""

import threading
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from stampede.errors import StoreDown
from stampede.store.footers import metadata_of, said
from stampede.store.merge import TableSpec
from stampede.store.objects import ObjectInfo, Objects
from stampede.store.runs import RunIndex, RunInfo, parse_footer, parse_index

MIB = 1 << 20
# Row groups that lie side by side are fetched at once, up to so many bytes.
GET_BYTES = 4 * MIB
# What a run says of itself lies in the last 32 KB of its footer: coverage is intervals. Of up to
# 60,000 rows that is the whole footer, so that looking things up there takes no request more.
SAID_BYTES = 32 << 10


class RunReader:
    """Reads the runs of one table; what it keeps, indexes included, has one limit.

    Parameters
    ----------
    cache_bytes
        Most bytes kept; 0 keeps nothing.
    """

    def __init__(self, objects: Objects, spec: TableSpec, cache_bytes: int) -> None:
        self.objects = objects
        self.spec = spec
        self.cache = Cache(cache_bytes)

    def footer(self, info: ObjectInfo) -> RunInfo:
        """What a part says of itself, for which its end is enough.

        Raises `NotFound`, `StoreDown`.
        """
        tail, need = self._tail(info, min(info.size, SAID_BYTES))
        with _parquet(info.key):
            metadata = None if need <= len(tail) else said(tail, self.spec.schema)
            if metadata is None:
                footer = tail[-need:] if need <= len(tail) else self._footer(info)
                self._keep(info.key, footer)
                metadata = metadata_of(footer)
        return parse_footer(metadata, info)

    def index(self, run: RunInfo) -> RunIndex:
        """The part's row groups. Raises `NotFound`, `StoreDown`."""
        index = self.cache.get(("index", run.key))
        if index is None:
            with _parquet(run.key):
                index = self._keep(run.key, self._footer(run.object))
        if index.rows.sum() != run.rows:
            raise StoreDown(f"{run.key} has not the rows it says it has")
        return index

    def open(self, run: RunInfo) -> "RunFile":
        """A part to read row groups from. Raises `NotFound`, `StoreDown`."""
        return RunFile(self.objects, run, self.index(run))

    def read(self, run: RunInfo, groups: Sequence[int]) -> "list[Block]":
        """The rows of each of `groups`, ascending, from memory where they are kept.

        Raises `NotFound`, `StoreDown`.
        """
        kept = {group: self.cache.get((group, run.key)) for group in groups}
        if missing := [group for group, rows in kept.items() if rows is None]:
            file = self.open(run)
            for group, block in file.fetch(missing):
                # Decoded, though that takes four times the memory: decoding again at each lookup
                # was half of what `read` does (`stampede bench read`).
                kept[group] = rows = Block.of(file.decode(group, block), self.spec.leading)
                self.cache.put((group, run.key), rows, rows.nbytes)
        return list(kept.values())

    def has(self, run: RunInfo, groups: Sequence[int]) -> bool:
        """Whether all of `groups` are in memory."""
        return all(self.cache.holds((group, run.key)) for group in groups)

    def _keep(self, key: str, footer: bytes) -> RunIndex:
        index = parse_index(footer, self.spec)
        self.cache.put(("index", key), index, index.nbytes)
        return index

    def _footer(self, info: ObjectInfo) -> bytes:
        """A footer's bytes, by one GET, or two where it is longer than they usually are."""
        tail, need = self._tail(info, min(info.size, (40 << 10) + info.size // 64))
        if need > len(tail):
            tail, _ = self._tail(info, need + 8)
        return tail[-need:]

    def _tail(self, info: ObjectInfo, length: int) -> tuple[bytes, int]:
        """The last of `length` bytes of Parquet that are footer, and how many it has.

        Raises `NotFound`, `StoreDown`.
        """
        tail = self.objects.get(info.key, info.size - length, length)
        need = int.from_bytes(tail[-8:-4], "little")
        if len(tail) != length or tail[-4:] != b"PAR1" or need + 8 > info.size:
            raise StoreDown(f"{info.key} is cut short or is not Parquet")
        return tail[:-8], need


class Block(NamedTuple):
    """The rows of a row group: those of the leading key `keys[i]` end before `ends[i]`."""

    rows: pa.Table
    keys: Sequence
    ends: np.ndarray

    @classmethod
    def of(cls, rows: pa.Table, leading: str) -> "Block":
        """Of rows that are sorted by their leading key."""
        runs = pc.run_end_encode(rows[leading].combine_chunks())
        numbers = pa.types.is_integer(runs.values.type)
        keys = runs.values.to_numpy() if numbers else runs.values.to_pylist()
        return cls(rows, keys, runs.run_ends.to_numpy())

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return self.rows.nbytes + self.ends.nbytes + 100 * len(self.keys)

    def between(self, first: int | str, last: int | str) -> pa.Table:
        """The rows of keys from `first` to `last`, not copied."""
        begin, end = bisect_left(self.keys, first), bisect_right(self.keys, last)
        start = int(self.ends[begin - 1]) if begin else 0
        return self.rows.slice(start, int(self.ends[end - 1]) - start if end > begin else 0)


class RunFile:
    """One part of a run and its index."""

    def __init__(self, objects: Objects, run: RunInfo, index: RunIndex) -> None:
        self.run = run
        self._objects = objects
        self._index = index

    def read(self, groups: Sequence[int]) -> list[pa.Table]:
        """The rows of each of `groups`, ascending. Raises `NotFound`, `StoreDown`."""
        return [self.decode(group, block) for group, block in self.fetch(groups)]

    def fetch(self, groups: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """The bytes of each of `groups`, ascending; neighbours come by one GET."""
        starts, ends = self._index.starts, self._index.ends
        for some in stretches(self._index, groups):
            start, end = int(starts[some[0]]), int(ends[some[-1]])
            data = self._objects.get(self.run.key, start, end - start)
            if len(data) != end - start:
                raise StoreDown(f"{self.run.key} is shorter than its footer says")
            for group in some:
                yield group, data[int(starts[group]) - start : int(ends[group]) - start]

    def decode(self, group: int, block: bytes) -> pa.Table:
        """The rows of a row group from its bytes."""
        stretch = _Stretch(block, int(self._index.starts[group]), self.run.object.size)
        metadata, number = self._index.descriptions.of(group)
        file = pq.ParquetFile(stretch, metadata=metadata, pre_buffer=False)
        return file.read_row_group(number, use_threads=False)


@contextmanager
def _parquet(key: str) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise StoreDown(f"{key} is not Parquet: {error}") from error


def stretches(index: RunIndex, groups: Sequence[int]) -> list[list[int]]:
    """`groups`, ascending, by what one GET fetches: side by side and not too many bytes."""
    some: list[list[int]] = []
    for group in groups:
        if (
            some
            and some[-1][-1] == group - 1
            and index.ends[group] - index.starts[some[-1][0]] <= GET_BYTES
        ):
            some[-1].append(group)
        else:
            some.append([group])
    return some


class Cache:
    """What was used last, up to so many bytes. Safe to share between threads."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self._kept: OrderedDict[tuple, tuple] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, name: tuple) -> Any:
        """What is kept under `name`, or None."""
        with self._lock:
            if name not in self._kept:
                return None
            self._kept.move_to_end(name)
            return self._kept[name][0]

    def holds(self, name: tuple) -> bool:
        """Whether something is kept under `name`; does not count as use."""
        return name in self._kept

    def put(self, name: tuple, value: object, size: int) -> None:
        """Keep `value`, and drop what was not used for longest."""
        with self._lock:
            _, old = self._kept.pop(name, (None, 0))
            self._kept[name] = value, size
            self.bytes += size - old
            while self.bytes > self.limit:
                _, (_, size) = self._kept.popitem(last=False)
                self.bytes -= size


class _Stretch:
    """A file of which one stretch is there: all that decoding a row group reads.

    (A sparse mapping of the whole file, which needs no Python, measured slower: page faults.)
    """

    closed = False

    def __init__(self, data: bytes, start: int, size: int) -> None:
        self._data, self._start, self._size, self._at = memoryview(data), start, size, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._size)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, length: int) -> bytes:
        at = self._at - self._start
        if at < 0 or at + length > len(self._data):
            raise ValueError("a read outside the row group")
        self._at += length
        return bytes(self._data[at : at + length])

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def close(self) -> None:
        pass
