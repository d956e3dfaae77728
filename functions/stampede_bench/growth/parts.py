"""The parts of a table too large to be written: made up, with the bytes of a few real ones.

A table of 10^9 alerts has hundreds of parts of 4 million rows. The benchmark writes one real part
for each level of runs, a stand-in, whose row groups reach over all ids of the table. Every part of
that level has the stand-in's bytes, but a key and a range of ids of its own: so a look-up asks the
parts that it would ask, reads an index for each, as large as it would be, and a real row group with
rows of the id. Only the listing and the ranges of ids say otherwise than the store.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stampede.alerts.columns import KINDS
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.index_sections import Sections, as_text
from stampede.store.runs.packed_coverage import packed
from stampede.store.runs.reader import RunReader
from stampede.store.runs.run import RunInfo
from stampede.store.runs.run_name import RunName, digest
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, TableSpec
from stampede.store.runs.writer import RunWriter
from stampede_bench.instruments.counting_store import CountingStore
from stampede_bench.instruments.synthetic import (
    ALERTS,
    APART,
    FIRST_ALERT,
    FIRST_OBJECT,
    FLUSH,
    POINTS,
    Made,
    cutout_rows,
    detection_rows,
    shape,
)

PARTITIONS = 60
ALERTS_PER_HOLE = 10_000
BLOCK = 667  # consecutive alerts, about those of a row group of `cutouts`
SLICE = 64 * 2000  # rows written at a time
NEVER = datetime.fromtimestamp(0, UTC)


class Size(NamedTuple):
    """A made-up table: its alerts, the fanout of its merges and the rows of a part."""

    alerts: int
    fanout: int
    run_rows: int

    def runs(self) -> list[Made]:
        """The runs that compaction leaves."""
        return shape(self.alerts // FLUSH, self.fanout)

    @property
    def objects(self) -> int:
        """Number of objects."""
        return max(1, self.alerts // ALERTS)


class SharedParts(CountingStore):
    """A store in which parts have the bytes of their stand-ins. Counts as `CountingStore`.

    Parameters
    ----------
    stand_ins
        By the key of a part: what its footer would say, and where its bytes are.
    """

    def __init__(self, inner: Objects, stand_ins: Mapping[str, RunInfo]) -> None:
        super().__init__(inner)
        self._stand_ins = stand_ins

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Objects.get`."""
        stand_in = self._stand_ins.get(key)
        return super().get(stand_in.key if stand_in else key, start, length)

    def head(self, key: str) -> ObjectInfo:
        """See `Objects.head`."""
        return self._as_listed(super().head(key))

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """See `Objects.list`."""
        return map(self._as_listed, super().list(prefix, after))

    def _as_listed(self, info: ObjectInfo) -> ObjectInfo:
        stand_in = self._stand_ins.get(info.key)
        if stand_in is None:
            return info
        return info._replace(size=stand_in.object.size, etag=stand_in.object.etag)


class SharedReader(RunReader):
    """Reads parts whose stand-ins reach over more ids than they."""

    def __init__(
        self,
        store: SharedParts,
        spec: TableSpec,
        cache_bytes: int,
        stand_ins: Mapping[str, RunInfo],
    ) -> None:
        super().__init__(store, spec, cache_bytes)
        self._stand_ins = stand_ins

    def index(self, run: RunInfo, *more: Any) -> Any:
        """See `RunReader.index`."""
        stand_in = self._stand_ins[run.key]
        first, last, sections = stand_in.first, stand_in.last, stand_in.sections
        return super().index(replace(run, first=first, last=last, sections=sections), *more)


def stand_ins(objects: Objects, spec: TableSpec, size: Size, ids: np.ndarray) -> dict[int, RunInfo]:
    """Write a stand-in for each level whose runs the look-ups reach; return them by level.

    `ids` are the numbers of the objects or alerts that will be looked up, ascending.
    """
    written: dict[int, RunInfo] = {}
    for run in size.runs():
        if run.level in written:
            continue
        if spec is CUTOUTS:
            if written or not _large(run, size):  # random ids are in large runs, which are alike
                continue
            numbers = blocks_of(size)
            slices: Iterator[pa.Table] = (
                cutout_rows(numbers[start : start + SLICE // len(KINDS)], size.objects)
                for start in range(0, len(numbers), SLICE // len(KINDS))
            )
        else:
            numbers = _object_numbers(run, size, ids)
            slices = (
                detection_rows(
                    numbers[start : start + SLICE],
                    run.first * FLUSH * POINTS + np.arange(start, min(start + SLICE, len(numbers))),
                )
                for start in range(0, len(numbers), SLICE)
            )
        writer = RunWriter(spec)
        for rows in slices:
            writer.add(rows)
        data = writer.close(run.level, (), Coverage())
        name = f"stand-ins/{spec.name}/{run.level:04}-{digest(data)}.parquet"
        objects.put(name, memoryview(data))
        written[run.level] = RunReader(objects, spec, 0).footer(objects.head(name))
    if spec is CUTOUTS:
        [only] = written.values()
        return {run.level: only for run in size.runs() if _large(run, size)}
    return written


def blocks_of(size: Size) -> np.ndarray:
    """Numbers of the alerts of a stand-in of `cutouts`, shape (alerts,): blocks from all years."""
    end = max(run.first + run.flushes for run in size.runs() if _large(run, size)) * FLUSH
    count = max(1, size.run_rows // len(KINDS) // BLOCK)
    starts = np.arange(count, dtype=np.int64) * end // count
    return (starts[:, None] + np.arange(BLOCK)).ravel()


def made_up(spec: TableSpec, size: Size, by_level: Mapping[int, RunInfo]) -> Iterator[RunInfo]:
    """The parts that compaction leaves, without coverage of one offset in `ALERTS_PER_HOLE`."""
    for run in size.runs():
        coverage = with_holes(run.first * FLUSH, (run.first + run.flushes) * FLUSH)
        coverage = packed(coverage) if run.level else coverage
        rows, count = _rows(run, spec), _parts(run, spec, size)
        inputs = tuple(
            f"{run.level - 1:04}-{digest(spec.name, str(run), str(number))}"
            for number in range(size.fanout if run.level else 0)
        )
        name = RunName(run.level, digest(spec.name, str(run)), 0, count)
        stand_in = by_level.get(run.level)
        for number in range(count):
            part = replace(name, part=number)
            first, last = _ends(run, spec, size, number, count)
            info = ObjectInfo(part.key(spec.name), 0, "", NEVER)
            made = RunInfo(part, info, inputs, coverage, rows // count, first, last, "00000000")
            if stand_in:
                made = replace(
                    stand_in,
                    name=part,
                    object=info,
                    inputs=inputs,
                    coverage=coverage,
                    first=first,
                    last=last,
                    sections=_within(stand_in.sections, first, last),
                )
            yield made


def _within(sections: Sections | None, first: Any, last: Any) -> Sections | None:
    """Sections that reach from `first` to `last`; those that lie outside have no keys between."""
    if sections is None:
        return None
    begin, *others = sections.listed
    others = [one._replace(key=min(max(one.key, first), last)) for one in others]
    return replace(sections, text=as_text([begin._replace(key=first), *others]), last=last)


def with_holes(first: int, end: int) -> Coverage:
    """The offsets of these alerts, dealt to the partitions in turn, with holes at random places."""
    low, high = first // PARTITIONS, max(end // PARTITIONS, first // PARTITIONS + 1)
    spans = {}
    for partition in range(PARTITIONS):
        chance = np.random.default_rng([first, partition])
        count = (high - low) // ALERTS_PER_HOLE
        holes = np.unique(chance.integers(low, high, count))
        starts, ends = np.append(low, holes + 1), np.append(holes, high)
        spans["lsst-alerts@" + 22 * "A", partition] = np.stack([starts, ends], 1)[starts < ends]
    return Coverage(spans)


def _rows(run: Made, spec: TableSpec) -> int:
    return run.flushes * FLUSH * (len(KINDS) if spec is CUTOUTS else POINTS)


def _parts(run: Made, spec: TableSpec, size: Size) -> int:
    return max(1, _rows(run, spec) // size.run_rows)


def _large(run: Made, size: Size) -> bool:
    return 2 * _rows(run, CUTOUTS) >= size.run_rows


def _object_numbers(run: Made, size: Size, ids: np.ndarray) -> np.ndarray:
    """Numbers of the objects of the points of a part, ascending, as dense as in such a run."""
    chance = np.random.default_rng(run.flushes)
    count = _parts(run, DETECTIONS, size)
    rows = _rows(run, DETECTIONS) // count
    if count == 1:
        return np.sort(chance.integers(0, size.objects, rows))
    # A part has a range of the objects, and all their points: here objects from all over.
    pool = np.union1d(ids, chance.integers(0, size.objects, max(1, size.objects // count)))
    return np.sort(chance.choice(pool, rows))


def _ends(
    run: Made, spec: TableSpec, size: Size, number: int, count: int
) -> tuple[int | str, int | str]:
    """The first and the last id of a part."""
    low, width = (run.first * FLUSH, run.flushes * FLUSH) if spec is CUTOUTS else (0, size.objects)
    first, last = (low + width * edge // count for edge in (number, number + 1))
    if spec is CUTOUTS:
        return FIRST_ALERT + APART * first, FIRST_ALERT + APART * (last - 1)
    return str(FIRST_OBJECT + first), str(FIRST_OBJECT + max(first, last - 1))
