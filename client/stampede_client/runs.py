"""The runs of a table: their names, which of them are to be read, and what they may lack.

`docs/store.md` describes the protocol. A run that was merged into a whole one is not read. A run
that is damaged or has lost a part replaces none of its inputs, and is read as far as it can be.
"""

import itertools
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import pyarrow as pa

from stampede_client.parquet_files import Footer, Group, Unverified, groups_of

Key = int | str | None
Coverage = Mapping[str, Sequence[tuple[int, int]]]
"""Offsets that a run holds: by topic and partition, half-open intervals."""


class Block(NamedTuple):
    """Where a run keeps offsets that have no room in its footer: bytes right before that."""

    length: int
    digest: str


Offsets = Callable[[Block, int], Coverage]
"""Reads a block that begins at that byte of its file."""
_NAME = re.compile(r"([0-9]{4})-([0-9a-f]{32})(?:-(0|[1-9][0-9]*)of([1-9][0-9]*))?\.parquet")


class Name(NamedTuple):
    """The name of a part of a run; `run` is the name of the whole run, which others list."""

    level: int
    digest: str
    part: int
    parts: int

    @property
    def run(self) -> str:
        """What a merged run lists as its input."""
        return f"{self.level:04}-{self.digest}"

    @property
    def file(self) -> str:
        """The name of the part's file."""
        part = f"-{self.part}of{self.parts}" if self.parts > 1 else ""
        return f"{self.run}{part}.parquet"

    @classmethod
    def parse(cls, file: str) -> "Name | None":
        """The name in that of a file; None for files that are no runs."""
        found = _NAME.fullmatch(file)
        if not found:
            return None
        name = cls(int(found[1]), found[2], int(found[3] or 0), int(found[4] or 1))
        return name if name.part < name.parts and name.file == file else None


class Part(NamedTuple):
    """A part of a run whose footer is verified. `first` and `last` are its leading keys."""

    name: Name
    path: str
    size: int
    footer: Footer
    groups: list[Group]
    inputs: frozenset[str]
    coverage: Coverage
    first: Key
    last: Key

    def holding(self, keys: Sequence[Any] | None) -> list[Group]:
        """The row groups that may have rows of these leading keys, ascending; None is all."""
        return [group for group in self.groups if may_hold(group.first, group.last, keys)]


class Gap(NamedTuple):
    """Rows that cannot be read: where, why, and between which leading keys (None: no bound)."""

    path: str
    why: str
    first: Key = None
    last: Key = None


class Fault(NamedTuple):
    """A part that cannot be read, or not all of it; `part` is None if its footer is unknown."""

    name: Name
    gap: Gap
    part: Part | None = None


class Remembered(NamedTuple):
    """A part that a checkpoint names: it was there once."""

    name: Name
    path: str
    inputs: frozenset[str]
    coverage: Coverage
    first: Key
    last: Key


class View(NamedTuple):
    """The parts to read, and what they lack."""

    live: list[Part]
    gaps: list[Gap]

    def lacking(self, keys: Sequence[Any] | None) -> list[Gap]:
        """The gaps that may hold rows of these leading keys, ascending; None is all."""
        return [gap for gap in self.gaps if may_hold(gap.first, gap.last, keys)]


def parse_part(
    table: str, name: Name, path: str, size: int, footer: Footer, offsets: Offsets
) -> Part:
    """A part, held to its name as far as its footer goes.

    Parameters
    ----------
    offsets
        Reads offsets that are not in the footer.

    Raises `Unverified`, and what `offsets` raises.
    """
    pairs = footer.pairs
    block = _block(pairs)
    coverage = None if block is None else offsets(block, size - 8 - footer.length - block.length)
    try:
        level, own, inputs, rows, first, last = (
            json.loads(pairs[f"stampede.{name}".encode()])
            for name in ("level", "table", "inputs", "rows", "first", "last")
        )
        if coverage is None:
            coverage = parse_coverage(pairs[b"stampede.coverage"])
        merged = b"stampede.cuts" in pairs
        named = [level, own] == [name.level, table] and merged == (level > 0)
        if merged:
            cuts, which = (json.loads(pairs[key]) for key in (b"stampede.cuts", b"stampede.part"))
            digest = sha256(json.dumps([inputs, cuts]).encode()).hexdigest()[:32]
            named &= [digest, which] == [name.digest, [name.part, name.parts]]
        between = _sections(pairs.get(b"stampede.sections")) + (block.length if block else 0)
        groups = groups_of(footer, size, between)
        part = Part(name, path, size, footer, groups, frozenset(inputs), coverage, first, last)
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError):
        raise Unverified("it does not have the footer of a run") from None
    if not named:
        raise Unverified("it does not hold the run of that name")
    if sum(group.rows for group in groups) != rows:
        raise Unverified("it does not have the rows that its footer says")
    return part


def _block(pairs: Mapping[bytes, bytes]) -> Block | None:
    """The block with a part's offsets; None if they are in its footer. Raises `Unverified`."""
    try:
        value = json.loads(pairs[b"stampede.coverage"])
        if isinstance(value, dict):
            return None
        length, digest = value
        return Block(int(length), str(digest))
    except (LookupError, ValueError, TypeError, RecursionError):
        raise Unverified("its footer does not say which offsets it holds") from None


def unpack(data: bytes, digest: str | None = None) -> Coverage:
    """The offsets in a block, which has this digest if that is given. Raises `Unverified`."""
    if digest not in (None, sha256(data).hexdigest()[:32]):
        raise Unverified("its offsets do not have their digest")
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
            rows = json.loads(stream.read())
        found: dict[str, list[tuple[int, int]]] = {}
        for topic, of_topic in rows.items():
            for partition, start, end in of_topic:
                found.setdefault(f"{topic}/{partition}", []).append((start, end))
    except (pa.ArrowException, OSError, ValueError, TypeError, AttributeError, RecursionError):
        raise Unverified("its offsets cannot be read") from None
    return {name: sorted(spans) for name, spans in found.items()}


def parse_coverage(text: str | bytes) -> Coverage:
    """The offsets in the JSON of a footer. Raises `ValueError`, `TypeError`, `AttributeError`."""
    return {
        name: sorted((int(start), int(end)) for start, end in spans)
        for name, spans in json.loads(text).items()
        if spans
    }


def check_checkpoint(pairs: Mapping[bytes, bytes], number: int, buckets: Collection[str]) -> None:
    """Raise `Unverified` if a checkpoint has another number, or is of none of these buckets."""
    try:
        own = json.loads(pairs[b"stampede.checkpoint"])
        named = own["number"] == number and own["bucket"] in buckets
    except (LookupError, ValueError, TypeError, RecursionError):
        named = False
    if not named:
        raise Unverified("it is a copy under another number, or of another bucket")


def remembered_in(rows: pa.Table, root: str) -> list[Remembered]:
    """The parts in the rows of a checkpoint of the bucket `root`. Raises `Unverified`."""
    coverages: dict[str, Coverage] = {}
    found = []
    try:
        for row in rows.to_pylist():
            path = f"{root}/{row['key']}"
            name = Name.parse(path.rpartition("/")[2])
            if name is None:
                raise Unverified("it names what is no run")
            if row["coverage"] is not None:  # of a run the first part has it
                coverages[name.run] = parse_coverage(row["coverage"])
            elif row.get("offsets") is not None:
                coverages[name.run] = unpack(row["offsets"])
            inputs, ends = frozenset(row["inputs"]), (row["first"], row["last"])
            found.append(Remembered(name, path, inputs, coverages[name.run], *ends))
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError):
        raise Unverified("it does not have the columns of a checkpoint") from None
    return found


def view_of(
    parts: Iterable[Part], faults: Sequence[Fault], remembered: Sequence[Remembered]
) -> View:
    """Which parts of a listing to read, and which rows may be missing.

    Parameters
    ----------
    parts, faults
        What is listed.
    remembered
        What was listed before.
    """
    by_run: dict[str, list[Part]] = {}
    for part in parts:
        by_run.setdefault(part.name.run, []).append(part)
    damaged = {fault.name.run for fault in faults}
    whole = {
        name: run
        for name, run in by_run.items()
        if name not in damaged and len(run) == run[0].name.parts
    }
    merged = {name for run in whole.values() for name in run[0].inputs}
    held = _Held(
        {*whole, *merged},
        _united(run[0].coverage for name, run in whole.items() if name not in merged),
    )
    live, gaps = [], []
    for name, run in by_run.items():
        if name in merged:
            continue
        there = {part.name.part for part in run}
        there |= {fault.name.part for fault in faults if fault.name.run == name}
        lost = sorted(set(range(run[0].name.parts)) - there)
        if lost and held.holds(run[0].inputs, run[0].coverage):
            continue  # half-written: its inputs are read
        live += run
        gaps += [_lost(run, number) for number in lost]
    for fault in faults:
        known = fault.part or next(iter(by_run.get(fault.name.run, ())), None)
        if fault.name.run in merged or (known and held.holds(known.inputs, known.coverage)):
            continue
        if known and not fault.part:
            first, last = _between(by_run[fault.name.run], fault.name.part)
            gaps.append(fault.gap._replace(first=first, last=last))
        else:
            gaps.append(fault.gap)
    listed = [*itertools.chain(*by_run.values())]
    seen = {part.name for part in listed} | {fault.name for fault in faults}
    once = merged.union(*(part.inputs for part in listed), *(one.inputs for one in remembered))
    why = "a checkpoint names it, it is gone, and no other run holds its offsets"
    for one in remembered:
        explained = one.name in seen or one.name.run in once or not one.coverage
        if not explained and not held.holds(frozenset(), one.coverage):
            gaps.append(Gap(one.path, why, one.first, one.last))
    return View(live, gaps)


def may_hold(first: Key, last: Key, keys: Sequence[Any] | None) -> bool:
    """Whether any of `keys` (ascending; None is all) lies between two keys (None: no bound)."""
    if keys is None:
        return True
    start = 0 if first is None else bisect_left(keys, first)
    return start < len(keys) and (last is None or keys[start] <= last)


class _Held(NamedTuple):
    """What whole runs hold for certain: runs by name, and offsets."""

    names: set[str]
    coverage: Coverage

    def holds(self, inputs: frozenset[str], coverage: Coverage) -> bool:
        """Whether the rows of a run with these inputs and offsets are in whole runs too."""
        if inputs and inputs <= self.names:
            return True
        return bool(coverage) and all(
            _inside(span, self.coverage.get(name, ()))
            for name, spans in coverage.items()
            for span in spans
        )


def _inside(span: tuple[int, int], spans: Sequence[tuple[int, int]]) -> bool:
    return any(start <= span[0] and span[1] <= end for start, end in spans)


def _united(parts: Iterable[Coverage]) -> Coverage:
    """All intervals; those that touch or overlap are one."""
    spans: dict[str, list[tuple[int, int]]] = {}
    for part in parts:
        for name, own in part.items():
            spans.setdefault(name, []).extend(own)
    return {name: _joined(sorted(own)) for name, own in spans.items()}


def _joined(spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for start, end in spans:
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def _lost(run: Sequence[Part], number: int) -> Gap:
    """The gap of a part that is not there."""
    name = run[0].name._replace(part=number)
    path = f"{run[0].path.rpartition('/')[0]}/{name.file}"
    return Gap(path, "a part of a merged run is missing", *_between(run, number))


def _between(run: Sequence[Part], number: int) -> tuple[Key, Key]:
    """The leading keys between which those of a part lie, by the parts beside it."""
    before = [part.last for part in run if part.name.part < number and part.last is not None]
    after = [part.first for part in run if part.name.part > number and part.first is not None]
    return max(before, default=None), min(after, default=None)


def _sections(sections: bytes | None) -> int:
    """The bytes of a part's sections. Raises `ValueError`, `TypeError`."""
    if sections is None:
        return 0
    return sum(int(index, 16) + int(bits, 16) for *_, index, bits, _ in json.loads(sections))
