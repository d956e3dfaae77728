"""Sections of a part of a run: index and filter of some row groups, read by one ranged GET.

A section lies between the row groups and the footer. It has the descriptions of 64 consecutive row
groups, as a Parquet footer of these alone, and the filter of their keys. So a lookup in a large
part needs neither its footer, 2 MB, nor the filter of all its keys, up to 6 MB.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from isal import isal_zlib

from stampede.errors import Damaged
from stampede.store.parquet import zstd
from stampede.store.runs.bloom_filters import Filter, Wanted
from stampede.store.runs.keys import between, bounds, overlapping
from stampede.store.runs.schema import TableSpec

_MOST_BYTES = 16 << 20  # of the index of a section, decompressed


class Section(NamedTuple):
    """Where a section lies: its least key, its first row group, its first byte, its lengths."""

    key: int | str
    group: int
    start: int
    index_length: int
    filter_length: int
    crc32: int

    @property
    def length(self) -> int:
        """Bytes of index and filter."""
        return self.index_length + self.filter_length


@dataclass(frozen=True)
class Sections:
    """The sections of a part: `text` is the value of `stampede.sections` in its footer.

    `last` is the greatest leading key of the part.
    """

    text: str
    last: int | str
    spec: TableSpec

    @cached_property
    def listed(self) -> list[Section]:
        """All sections, in key order. Raises `ValueError`, `TypeError`."""
        return self._parsed()

    def _parsed(self) -> list[Section]:
        return [
            Section(key, group, *(int(number, 16) for number in numbers))
            for key, group, *numbers in json.loads(self.text)
        ]

    def check(self, first: int | str) -> None:
        """Raise `ValueError` or `TypeError` unless these sections can be those of a part.

        They must reach from its least leading key, `first`, to its greatest, and from its first row
        group on: otherwise a lookup would leave out rows.
        """
        listed = self._parsed()  # not kept: a start checks every part, and lookups read few
        keys = [section.key for section in listed]
        groups = [section.group for section in listed]
        ends = [first, *keys, self.last]
        if not all(type(key) is type(first) for key in ends) or ends != sorted(ends):
            raise ValueError("its sections are not in the order of keys")
        if keys[:1] != [first] or groups[0] != 0 or groups != sorted(set(groups)):
            raise ValueError("its sections do not hold all its row groups")
        if any(min(section[2:]) < 0 for section in listed):
            raise ValueError("a section lies before the beginning")

    @property
    def length(self) -> int:
        """Bytes of all sections."""
        return sum(section.length for section in self.listed)

    def last_key(self, number: int) -> int | str:
        """A key that no row of a section exceeds."""
        later = self.listed[number + 1 :]
        return later[0].key if later else self.last

    def holding(self, wanted: Wanted) -> Iterator[tuple[int, Wanted]]:
        """Number of each section whose rows may have any of these keys, and which of the keys."""
        firsts, lasts = self.ends
        for number in overlapping(firsts, lasts, wanted.places).tolist():
            here = between(wanted.places, firsts[number], lasts[number])
            yield number, wanted.part(here)

    def span(self, number: int, ends: np.ndarray) -> bool:
        """Whether `holding` names a section for every key between `ends`, which are `sortable`."""
        firsts, lasts = self.ends
        return bool(firsts[number] <= ends[0] and ends[1] <= lasts[number])

    @cached_property
    def ends(self) -> tuple[np.ndarray, np.ndarray]:
        """Bounds of the keys of each section: the least ones, the greatest ones."""
        keys = [section.key for section in self.listed]
        lasts = bounds([*keys[1:], self.last], self.spec, upper=True)
        return bounds(keys, self.spec), lasts


def placeholder(firsts: Sequence[int | str], groups: Sequence[int]) -> str:
    """The value of `stampede.sections` before their places are known: as long as that of `fill`."""
    return as_text([Section(*ends, 0, 0, 0, 0) for ends in zip(firsts, groups, strict=True)])


def fill(
    firsts: Sequence[int | str],
    groups: Sequence[int],
    start: int,
    footers: Sequence[bytes],
    filters: Sequence[Filter | None],
) -> tuple[str, bytes]:
    """The value of `stampede.sections`, and the bytes of all sections, which begin at `start`."""
    sections: list[Section] = []
    pieces: list[bytes] = []
    for key, group, footer, one in zip(firsts, groups, footers, filters, strict=True):
        index, bits = zstd.compress(footer), one.data if one else b""
        crc32 = isal_zlib.crc32(bits, isal_zlib.crc32(index))
        sections.append(Section(key, group, start, len(index), len(bits), crc32))
        pieces += index, bits
        start += len(index) + len(bits)
    return as_text(sections), b"".join(pieces)


def open_section(key: str, section: Section, data: bytes) -> tuple[bytes, Filter | None]:
    """The footer and the filter in the bytes of a section. Raises `Damaged`, which names `key`."""
    if len(data) != section.length or isal_zlib.crc32(data) != section.crc32:
        raise Damaged(f"{key}: a section does not have its checksum: it is damaged")
    try:
        footer = zstd.decompress(data[: section.index_length], _MOST_BYTES)
    except ValueError as error:
        raise Damaged(f"{key}: the index of a section is damaged: {error}") from None
    bits = data[section.index_length :]
    return footer, Filter(bits) if bits else None


def as_text(sections: Sequence[Section]) -> str:
    """The value of `stampede.sections`: numbers have a constant length, for the placeholder."""
    return json.dumps(
        [
            (one.key, one.group, f"{one.start:012x}", *(f"{number:08x}" for number in one[3:]))
            for one in sections
        ]
    )
