"""What a table's listing means: which parts to read, and which rows they may lack."""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from stampede.store.offsets.coverage import Coverage, LastUnion
from stampede.store.runs.bloom_filters import Wanted
from stampede.store.runs.keys import bounds, overlapping
from stampede.store.runs.packed_coverage import readable
from stampede.store.runs.quarantine import Fault
from stampede.store.runs.run import Run, RunInfo, inputs_of
from stampede.store.runs.run_name import RunName
from stampede.store.runs.schema import TableSpec

FEW = 64
"""Parts that are looked through for one key in less time than numpy needs to begin."""
LOST = "a part of a merged run is missing"


class Spans:
    """The ranges of leading keys of many parts."""

    def __init__(self, parts: Iterable[RunInfo], spec: TableSpec) -> None:
        self._parts = [part for part in parts if part.rows]
        self._firsts = bounds([part.first for part in self._parts], spec)
        self._lasts = bounds([part.last for part in self._parts], spec, upper=True)

    @cached_property
    def _ends(self) -> list[tuple[RunInfo, Any, Any]]:
        """Each part, and the bounds of its keys as Python values."""
        return [*zip(self._parts, self._firsts.tolist(), self._lasts.tolist(), strict=True)]

    def holding(self, wanted: Wanted) -> list[RunInfo]:
        """The parts that may hold any of these keys."""
        key: Any = wanted.only
        if key is not None and len(self._parts) <= FEW:
            return [part for part, first, last in self._ends if first <= key <= last]
        return [self._parts[i] for i in overlapping(self._firsts, self._lasts, wanted.places)]


class TableView:
    """The parts that a reader reads, of those in a listing.

    A run that is damaged, or that has lost a part, is read as far as it can be, but its coverage
    does not count and it replaces none of its inputs.

    Parameters
    ----------
    parts
        The parts that could be read.
    faults
        What is in quarantine.
    omitted
        Parts that a listing left out, by key with the reason: it may have left out others, so any
        lookup may lack rows.
    union
        That of the view before.

    Attributes
    ----------
    parts
        The live parts, in key order.
    lost
        Parts that should be there and are not, by key: the part of the same run that came last.
    """

    def __init__(
        self,
        spec: TableSpec,
        parts: Sequence[RunInfo],
        faults: Iterable[Fault],
        omitted: Mapping[str, str] | None = None,
        union: LastUnion | None = None,
    ) -> None:
        self._union = union or LastUnion()
        self._spec, self._faults, self._omitted = spec, list(faults), omitted or {}
        self._by_run: dict[str, list[RunInfo]] = {}
        for part in sorted(parts, key=lambda part: part.name.part):
            self._by_run.setdefault(part.name.run, []).append(part)
        left_out = [_name(fault) for fault in self._faults if fault.group is None]
        damaged = {_name(fault).run for fault in self._faults}
        whole = [
            tuple(run)
            for name, run in self._by_run.items()
            if len(run) == run[0].name.parts and name not in damaged
        ]
        self._superseded = inputs_of(whole)
        self._whole: list[Run] = [run for run in whole if run[0].name.run not in self._superseded]
        live = [part for run in self._whole for part in run]
        self.lost: dict[str, RunInfo] = {}
        whole_names = {run[0].name.run for run in whole}
        for name, run in self._by_run.items():
            if name in whole_names or name in self._superseded:
                continue
            numbers = {part.name.part for part in run}
            numbers |= {one.part for one in left_out if one.run == name}
            missing = set(range(run[0].name.parts)) - numbers
            if missing and readable(run[0].coverage) and not run[0].coverage - self.coverage:
                continue  # half-written: its inputs are live
            live += run
            newest = max(run, key=lambda part: part.object.modified)
            self.lost |= {_key(spec, newest.name, number): newest for number in missing}
        self.parts = sorted(live, key=lambda part: part.key)
        self.spans = Spans(self.parts, spec)

    @cached_property
    def coverage(self) -> Coverage:
        """The offsets that the live runs hold for certain."""
        held = [run[0].coverage for run in self._whole]
        return self._union.of(each for each in held if readable(each))

    def not_held(self, gone: Iterable[RunInfo]) -> list[RunInfo]:
        """Those of the parts that are gone whose offsets the live runs do not hold.

        A run that was merged is, or was, an input of another, whose coverage has its own. If that
        other is damaged, it is named itself.
        """
        gone = list(gone)
        if not gone:  # as at nearly every refresh
            return []
        parts = itertools.chain(gone, *self._by_run.values())
        merged = {name for part in parts for name in part.inputs}
        merged |= {name for fault in self._faults if fault.run for name in fault.run.inputs}
        return [
            part
            for part in gone
            if part.name.run not in merged
            and part.coverage
            and readable(part.coverage)
            and part.coverage - self.coverage
        ]

    def lacking(self, values: Sequence[Any]) -> Mapping[str, str]:
        """Objects that may hold rows of `values` (sorted) and are not read: key and reason."""
        found = {}
        for key, reason, first, last in self.gaps:
            start = 0 if first is None else bisect_left(values, first)
            if start < len(values) and (last is None or values[start] <= last):
                found[key] = reason
        return found

    def unreadable(self, values: Sequence[Any]) -> list[Any]:
        """Those of `values` (sorted) of which rows may be missing."""
        found: set[int] = set()
        for _, _, first, last in self.gaps:
            start = 0 if first is None else bisect_left(values, first)
            end = len(values) if last is None else bisect_right(values, last)
            found.update(range(start, end))
        return [values[number] for number in sorted(found)]

    @cached_property
    def gaps(self) -> list[tuple[str, str, int | str | None, int | str | None]]:
        """Key, reason, and range of leading keys of all that is not read and not held elsewhere."""
        gaps: list[tuple[str, str, int | str | None, int | str | None]] = [
            (key, reason, None, None) for key, reason in self._omitted.items()
        ]
        for fault in self._faults:
            name, key = _name(fault), fault.object.key
            sibling = fault.run or next(iter(self._by_run.get(name.run, ())), None)
            if name.run in self._superseded or (sibling and not self._lacks(sibling)):
                continue
            ends = fault.first, fault.last
            gaps.append(
                (key, fault.reason, *(self._between(name) if ends == (None, None) else ends))
            )
        for key in self.lost:
            parsed = RunName.parse(key)
            if parsed:
                gaps.append((key, LOST, *self._between(parsed)))
        return gaps

    def _lacks(self, part: RunInfo) -> bool:
        """Whether a damaged run may hold rows that no whole run holds."""
        held = part.coverage
        return not held or not readable(held) or bool(held - self.coverage)

    def _between(self, name: RunName) -> tuple[int | str | None, int | str | None]:
        """The leading keys that a part may hold, by the parts beside it."""
        parts = self._by_run.get(name.run, [])
        before = [part.last for part in parts if part.name.part < name.part and part.rows]
        after = [part.first for part in parts if part.name.part > name.part and part.rows]
        return before[-1] if before else None, after[0] if after else None


def _name(fault: Fault) -> RunName:
    name = RunName.parse(fault.object.key)
    if name is None:
        raise ValueError(f"{fault.object.key} does not have the name of a run")
    return name


def _key(spec: TableSpec, name: RunName, part: int) -> str:
    return RunName(name.level, name.digest, part, name.parts).key(spec.name)
