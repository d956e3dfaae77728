"""Filters: which leading keys are certainly not among the rows of a part.

The bytes are those of a Bloom filter of Parquet (split blocks and XXH64): blocks of 32 bytes, in
which a key sets eight bits. But one filter covers many row groups, and its number of blocks need
not be a power of two. https://parquet.apache.org/docs/file-format/bloomfilter/
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from stampede.store.parquet.xxhash64 import hash_key, hash_keys
from stampede.store.runs.keys import sortable
from stampede.store.runs.schema import TableSpec

KEY_BITS = 12
"""Bits per key: one key in 200 that is not there passes."""
_BLOCK = 32  # bytes
_SALT = (
    *(0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D),
    *(0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31),
)
_FEW = 16  # keys that are hashed sooner one by one


@dataclass(frozen=True)
class Filter:
    """The filter of some leading keys: `data` are its bytes."""

    data: bytes

    def __post_init__(self) -> None:
        if not self.data or len(self.data) % _BLOCK:
            raise ValueError("a filter is not made of blocks")

    @classmethod
    def of(cls, hashes: np.ndarray) -> Self:
        """The filter of the keys with these hashes (`hash_keys`)."""
        blocks = -(-len(hashes) * KEY_BITS // (8 * _BLOCK)) or 1
        bits = np.zeros(8 * _BLOCK * blocks, bool)
        low = hashes & np.uint64(0xFFFFFFFF)
        first = 8 * _BLOCK * _block(hashes, blocks)
        for number, salt in enumerate(_SALT):
            bits[first + np.uint64(32 * number) + _bit(low, salt)] = True
        return cls(np.packbits(bits, bitorder="little").tobytes())

    def passes(self, hashes: np.ndarray) -> np.ndarray:
        """Whether each key may be there: bool, of the shape of `hashes`."""
        words = np.frombuffer(self.data, "<u4").reshape(-1, len(_SALT))
        low = hashes & np.uint64(0xFFFFFFFF)
        block = words[_block(hashes, len(words))]
        found = np.ones(len(hashes), bool)
        for number, salt in enumerate(_SALT):
            found &= (block[:, number] >> _bit(low, salt).astype(np.uint32) & 1).astype(bool)
        return found

    def passes_one(self, key: "OneHash") -> bool:
        """As `passes`, for one key: half a microsecond instead of thirty."""
        start = _BLOCK * ((key.hash >> 32) * (len(self.data) // _BLOCK) >> 32)
        block = int.from_bytes(self.data[start : start + _BLOCK], "little")
        return block & key.bits == key.bits


class OneHash(NamedTuple):
    """The hash of one key, and the bits that it sets in its block, as a number of 256 bits."""

    hash: int
    bits: int

    @classmethod
    def of(cls, key: int | str) -> Self:
        """That of a leading key."""
        key_hash = hash_key(key)
        bits = 0
        for number, salt in enumerate(_SALT):
            bits |= 1 << 32 * number + ((key_hash * salt & 0xFFFFFFFF) >> 27)
        return cls(key_hash, bits)


def _block(hashes: np.ndarray, blocks: int) -> np.ndarray:
    return (hashes >> np.uint64(32)) * np.uint64(blocks) >> np.uint64(32)


def _bit(low: np.ndarray, salt: int) -> np.ndarray:
    return (low * np.uint64(salt) & np.uint64(0xFFFFFFFF)) >> np.uint64(27)


class Wanted:
    """Leading keys of a table that are looked up, ascending: `values`."""

    def __init__(self, values: Sequence[Any], spec: TableSpec) -> None:
        self.values, self._spec = values, spec

    @classmethod
    def of(cls, values: Sequence[Any], spec: TableSpec) -> Self:
        """Any leading keys of a table."""
        return cls(values if len(values) < 2 else sorted(set(values)), spec)

    @cached_property
    def places(self) -> np.ndarray:
        """The keys as `keys.sortable` returns them."""
        return sortable(self.values, self._spec)

    @cached_property
    def only(self) -> int | bytes | None:
        """The key as `places` has it, without an array; None unless there is one key."""
        if len(self.values) != 1:
            return None
        [key] = self.values
        # numpy drops a string's trailing NULs.
        return key.encode().rstrip(b"\0") if isinstance(key, str) else key

    @cached_property
    def hashes(self) -> np.ndarray:
        """The hash of each."""
        if len(self.values) < _FEW:
            return np.array([hash_key(value) for value in self.values], np.uint64)
        return hash_keys(pa.array(self.values))

    @cached_property
    def _hash(self) -> OneHash:
        return OneHash.of(self.values[0])

    def part(self, places: slice) -> "Wanted":
        """Those at `places`."""
        if places.stop - places.start == len(self.values):
            return self
        part = Wanted(self.values[places], self._spec)
        part.places = self.places[places]
        if "hashes" in self.__dict__:
            part.hashes = self.hashes[places]
        return part

    def passing(self, one: Filter | None) -> "Wanted":
        """Those that pass a filter; all of them without one."""
        if one is None or not self.values:
            return self
        if len(self.values) == 1:
            return self if one.passes_one(self._hash) else Wanted([], self._spec)
        places = np.flatnonzero(one.passes(self.hashes)).tolist()
        passing = Wanted([self.values[place] for place in places], self._spec)
        passing.places = self.places[places]
        passing.hashes = self.hashes[places]
        return passing
