"""Packed coverage: the offsets of a merged run, outside its footer if the footer has no room.

A survey with a topic a night has 400 topics in a year. Their offsets would be 370 KB in the footer
of every part of every large run, and of every copy of that footer. So a part keeps them in a block
of its own, between its row groups and its footer, and the footer names the digest of that block.
The claim stays with the rows: no part can be there without it.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from stampede.errors import Damaged, StoreDown
from stampede.store.offsets.coverage import Coverage, PartitionId, united
from stampede.store.parquet import zstd
from stampede.store.runs.run_name import digest

INLINE_BYTES = 3 << 10
"""Most bytes of a coverage, as JSON, that stay in a footer: two nights of 16 partitions."""
_MOST_BYTES = 256 << 20  # of a block, decompressed


class Block(NamedTuple):
    """What a footer says of the block: its length in bytes, and its digest.

    It is the value of `stampede.coverage` in a footer of format 2, and ends where the footer
    begins.
    """

    length: int
    digest: str

    def to_json(self) -> str:
        """As in the footer."""
        return json.dumps(list(self))

    @classmethod
    def parse(cls, text: bytes | str) -> "Block | None":
        """The block that a footer names; None if it has the offsets themselves.

        Raises `ValueError`, `TypeError`.
        """
        value = json.loads(text)
        if not isinstance(value, list):
            return None
        length, named = value
        if not (isinstance(length, int) and length > 0 and isinstance(named, str)):
            raise ValueError("its coverage is no length and digest")
        return cls(length, named)


class PackedCoverage(Coverage):
    """A coverage as the bytes of its block, unpacked when somebody first asks for an offset.

    A start needs the offsets of no run to look up rows. Two packed ones with one digest are equal.
    """

    __slots__ = ("__weakref__", "block", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.block = Block(len(data), digest(data))

    def __getattr__(self, name: str) -> Any:
        if name != "_spans":
            raise AttributeError(name)
        self._spans = _unpack(self.data)._spans
        return self._spans

    def __bool__(self) -> bool:
        return True  # what fits into a footer is not packed

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedCoverage) and other.block == self.block:
            return True
        return super().__eq__(other)

    __hash__ = Coverage.__hash__


class StoredCoverage(PackedCoverage):
    """A packed coverage that a start left in the store: its block is read when it is asked for.

    `load` returns the bytes of the block. Raises `StoreDown`, `UnreadableOffsets`.
    """

    __slots__ = ("load",)

    def __init__(self, block: Block) -> None:
        self.block = block
        self.load: Callable[[], bytes] | None = None

    def __getattr__(self, name: str) -> Any:
        if name != "data":
            return super().__getattr__(name)
        if self.load is None:
            raise LookupError("the offsets of this run are in an object that was not read")
        self.data = self.load()
        return self.data


class UnreadableOffsets(StoreDown):
    """No object in the store has the offsets of a run that was there."""


def readable(coverage: Coverage) -> bool:
    """Whether the store has the offsets, which this may read. Raises `StoreDown`."""
    try:
        return not isinstance(coverage, StoredCoverage) or bool(coverage.data)
    except UnreadableOffsets:
        return False


class UnreadCoverage(Coverage):
    """A coverage whose block was not read: it has no answer, not even that it is empty."""

    __slots__ = ("block",)

    def __init__(self, block: Block) -> None:
        self.block = block

    def __getattr__(self, name: str) -> Any:
        if name != "_spans":
            raise AttributeError(name)
        raise LookupError("the offsets of this run are in a block that was not read")


def packed(coverage: Coverage) -> Coverage:
    """The same coverage as a run of its own keeps it: packed, if a footer has no room for it."""
    if isinstance(coverage, PackedCoverage) or len(coverage.to_json()) <= INLINE_BYTES:
        return coverage
    rows: dict[str, list[list[int]]] = {}
    for topic, number in coverage.partitions():
        spans = coverage.intervals(topic, number)
        rows.setdefault(topic, []).extend([number, *span] for span in spans)
    return PackedCoverage(zstd.compress(json.dumps(rows, separators=(",", ":")).encode()))


def read_block(key: str, block: Block, data: bytes) -> PackedCoverage:
    """The coverage in the bytes of a block. Raises `Damaged`, which names `key`."""
    coverage = PackedCoverage(data)
    if coverage.block != block:
        raise Damaged(f"{key}: the block of its offsets does not have its digest: it is damaged")
    return coverage


def check_block(key: str, coverage: Coverage) -> None:
    """Unpack a block that has its digest, for whoever verifies a run. Raises `Damaged`."""
    if isinstance(coverage, PackedCoverage) and not len(_unpack(coverage.data)):
        raise Damaged(f"{key}: the block of its offsets is empty")


def _unpack(data: bytes) -> Coverage:
    """The offsets in a block that has its digest. Raises `Damaged`: it was written so.

    It holds ``{"topic@id": [[partition, start, end], ...], ...}`` in a Zstandard frame.
    """
    try:
        rows = json.loads(zstd.decompress(data, _MOST_BYTES))
        return Coverage(_by_partition(rows))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise Damaged(f"the block {digest(data)} holds no offsets: {error}") from None


def _by_partition(rows: Mapping[str, Sequence[Sequence[int]]]) -> dict[PartitionId, np.ndarray]:
    # One array for all: to make one for each of 100,000 partitions takes half a second.
    held = np.array([*chain.from_iterable(rows.values())], np.int64).reshape(-1, 3)[:, 1:]
    filled = (held[:, 0] < held[:, 1]).tolist()
    found: dict[PartitionId, np.ndarray] = {}
    begin = 0
    for topic, of_topic in rows.items():
        places: dict[int, list[int]] = {}
        for place, row in enumerate(of_topic, begin):
            places.setdefault(row[0], []).append(place)
        for number, [at, *more] in places.items():
            single = held[at : at + 1]
            found[topic, number] = single if filled[at] and not more else united(held[[at, *more]])
        begin += len(of_topic)
    return found
