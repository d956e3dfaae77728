"""Synthetic tables like those of years of alerts: the rows are invented, the runs are real.

The runs that compaction leaves are like the digits of a number: after n flushes, the number of runs
on level l, each of fanout^l flushes, is the l-th digit of n in base `fanout`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.alerts.columns import KINDS
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.run_name import RunName, digest
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, TableSpec
from stampede.store.runs.writer import RunWriter

FLUSH = 300  # alerts per flush: a source has this many in flight
POINTS = 2  # points that an alert adds to a light curve: a detection and a forced point
ALERTS = 10  # alerts of each object so far
SLICE = 1 << 17  # rows made at a time
FIRST_OBJECT = 10**17  # so that all ids have the same number of digits
FIRST_ALERT = 10**17
SHARING = 20  # alerts of one visit and detector, which share their PSFs
APART = 37  # difference of two consecutive alert ids
_NOISE = np.random.default_rng(1).random(2 * SLICE)


class Made(NamedTuple):
    """A run of a synthetic table: its level, its first flush and the number of its flushes."""

    level: int
    first: int
    flushes: int


def shape(flushes: int, fanout: int) -> list[Made]:
    """The runs that compaction leaves after this many flushes, the oldest first."""
    top, runs = 0, []
    while fanout ** (top + 1) <= flushes:
        top += 1
    first = 0
    for level in range(top, -1, -1):
        size = fanout**level
        for _ in range((flushes - first) // size):
            runs.append(Made(level, first, size))
            first += size
    return runs


def fill(
    objects: Objects,
    spec: TableSpec,
    alerts: int,
    fanout: int,
    run_rows: int,
    real: pa.Table | None = None,
) -> int:
    """Write a table of this many alerts. Returns its size in bytes.

    `real` are rows of one alert of `cutouts`, which take the place of the invented ones.
    """
    stored, slices_of = 0, partial(cutouts, real=real) if spec is CUTOUTS else detections
    for run in shape(alerts // FLUSH, fanout):
        first, end = run.first * FLUSH, (run.first + run.flushes) * FLUSH
        coverage = Coverage({("made-up", 0): np.array([[first, end]])})
        slices = slices_of(first, end, max(1, alerts // ALERTS))
        for name, tables in _parts(run, f"{spec.name} {run} {alerts}", slices, run_rows):
            writer = RunWriter(spec)
            for rows in tables:
                writer.add(rows)
            data = writer.close(run.level, (), coverage)
            if name.level == 0:  # merges hold it to the digest in its name
                name = RunName(0, digest(data))
            objects.put(name.key(spec.name), memoryview(data))
            stored += data.size
    return stored


def flush(number: int, alerts: int, objects: int) -> tuple[pa.Table, Coverage]:
    """The points of one flush, and its coverage."""
    first, end = number * alerts, (number + 1) * alerts
    return detections(first, end, objects).make(0), Coverage(
        {("made-up", 0): np.array([[first, end]])}
    )


def random_id(spec: TableSpec, alerts: int, random: Random) -> int | str:
    """A random id from a table of this many alerts."""
    if spec is CUTOUTS:
        return FIRST_ALERT + APART * random.randrange(alerts // FLUSH * FLUSH)
    return str(FIRST_OBJECT + random.randrange(max(1, alerts // ALERTS)))


def runs_with_an_id(spec: TableSpec, alerts: int, fanout: int) -> float:
    """The expected number of runs that have rows of a random id."""
    if spec is CUTOUTS:
        return 1.0
    objects = max(1, alerts // ALERTS)
    rows = (run.flushes * FLUSH * POINTS for run in shape(alerts // FLUSH, fanout))
    return sum(1 - math.exp(-count / objects) for count in rows)


def cutouts(first: int, end: int, objects: int, real: pa.Table | None = None) -> "Slices":
    """Locations of cutouts in the order of alert ids, which grow with time as in surveys."""
    per_slice = SLICE // len(KINDS)

    def slice_of(number: int) -> pa.Table:
        begin = first + number * per_slice
        rows = cutout_rows(np.arange(begin, min(end, begin + per_slice)), objects)
        return rows if real is None else _with_real(rows, real)

    return Slices(-(-(end - first) // per_slice), slice_of)


def cutout_rows(numbers: np.ndarray, objects: int) -> pa.Table:
    """The locations of the cutouts of the alerts with these numbers, ascending, shape (alerts,)."""
    kinds, begin = len(KINDS), int(numbers[0])
    alerts = np.repeat(numbers, kinds)
    count = len(alerts)
    flushes = pa.array(alerts // FLUSH).dictionary_encode()
    in_tails = np.where(np.arange(count) % kinds == kinds - 1, 8_051, 0)
    packs = [f"packs/61000/{digest(str(one))}.parquet" for one in flushes.dictionary.to_pylist()]
    columns = {
        "alert_id": FIRST_ALERT + alerts * APART,
        "survey": pa.repeat("lsst", count),
        "kind": pa.array(sorted(KINDS)).take(pa.array(np.arange(count) % kinds)),
        "object_id": pa.array(FIRST_OBJECT + alerts * 7919 % objects).cast(pa.string()),
        "mjd": 61_000 + alerts / 3e5,
        "pack": pa.array(packs).take(flushes.indices),
        "page_offset": np.arange(count) // kinds % FLUSH * 21_004 + 70,
        "page_length": (21_000 + 500 * _noise(count // kinds, begin))
        .astype(np.int32)
        .repeat(kinds),
        "start": pa.array(np.arange(count, dtype=np.int32) % kinds * 17_284 + 10),
        "length": pa.array([34_560, 34_560, 43_200] * (count // kinds), pa.int32()),
        "tail_offset": FLUSH * 21_004 + alerts % FLUSH // SHARING * 22_224 + in_tails,
        "tail_length": pa.array([8_051, 8_051, 14_173] * (count // kinds), pa.int32()),
        "crc32": np.arange(count, dtype=np.uint32) * 2_654_435_761,
        "message_crc32": alerts.astype(np.uint32) * 2_654_435_769,
    }
    return pa.table(columns, CUTOUTS.schema.remove_metadata())


def _with_real(rows: pa.Table, real: pa.Table) -> pa.Table:
    """The rows, with `real` in place of those of its alert, if they have it."""
    alert_id = real["alert_id"][0].as_py()
    begin, end = np.searchsorted(rows["alert_id"].to_numpy(), [alert_id, alert_id + 1]).tolist()
    if begin == end:
        return rows
    return pa.concat_tables([rows.slice(0, begin), real.cast(rows.schema), rows.slice(end)])


def detections(first: int, end: int, objects: int) -> "Slices":
    """Points of light curves, of random objects, so that every run has ids from the whole range."""
    rows = (end - first) * POINTS
    object_numbers = np.sort(np.random.default_rng(first).integers(0, objects, rows))
    # No object is cut by the end of a slice.
    bounds = np.unique(np.searchsorted(object_numbers, object_numbers[np.arange(0, rows, SLICE)]))
    bounds = np.append(bounds, rows)

    def slice_of(number: int) -> pa.Table:
        begin, stop = int(bounds[number]), int(bounds[number + 1])
        return detection_rows(object_numbers[begin:stop], first * POINTS + np.arange(begin, stop))

    return Slices(len(bounds) - 1, slice_of)


def points(object_numbers: Sequence[int], first: int, end: int) -> pa.Table:
    """The points ``[first, end)`` of the light curves of these objects, which are ascending."""
    count = end - first
    numbers = np.tile(np.arange(first, end), len(object_numbers))
    return detection_rows(np.repeat(np.asarray(object_numbers), count), numbers)


class Slices(NamedTuple):
    """The rows of a run in key order, slice by slice. No slice begins in the middle of a key."""

    number: int
    make: Callable[[int], pa.Table]


def _parts(
    run: Made, what: str, slices: Slices, run_rows: int
) -> Iterator[tuple[RunName, Iterator[pa.Table]]]:
    """The name and the rows of each part of a run."""
    slices_per_part = max(1, run_rows // SLICE)
    parts = -(-slices.number // slices_per_part)
    for part in range(parts):
        begin = part * slices_per_part
        numbers = range(begin, min(slices.number, begin + slices_per_part))
        yield RunName(run.level, digest(what), part, parts), map(slices.make, numbers)


def detection_rows(object_numbers: np.ndarray, numbers: np.ndarray) -> pa.Table:
    """Points from the numbers of their objects and their own numbers, both of shape (rows,).

    The same numbers give the same point.
    """
    count = len(object_numbers)
    noise = _NOISE[(object_numbers * 7919 + numbers * 104_729) % len(_NOISE)]
    flux = (1000 * noise).astype(np.float32)
    columns = {
        "object_id": pa.array(FIRST_OBJECT + object_numbers).cast(pa.string()),
        "survey": pa.repeat("lsst", count),
        "forced": np.zeros(count, bool),
        "limit": np.zeros(count, bool),
        "source_id": FIRST_ALERT + numbers * APART,
        "mjd": 61_000 + 3650 * noise,
        "band": pa.array(list("ugrizy")).take(pa.array((6 * noise).astype(int))),
        "ra": object_numbers * 1e-5 + noise * 1e-6,
        "dec": object_numbers * -1e-5 + noise * 1e-6,
        "flux": flux,
        "flux_err": flux / 9,
        "total_flux": flux * 3,
        "total_flux_err": flux / 7,
        "reliability": noise.astype(np.float32),
        "visit": (2_025_000_000 + 1e6 * noise).astype(int),
        "detector": (189 * noise).astype(np.int32),
        "withdrawn": np.zeros(count, bool),
        "processed_mjd": 61_000 + 3650 * noise,
        "flags": (1 << (300 * noise).astype(np.int32) % 28) * (noise < 0.1),
        "procstatus": pa.nulls(count, pa.string()),
        "limiting_mag": pa.nulls(count, pa.float32()),
        "rb": pa.nulls(count, pa.float32()),
        "programid": pa.nulls(count, pa.int32()),
        "moved": pa.nulls(count, pa.bool_()),
    }
    return pa.table(columns, DETECTIONS.schema.remove_metadata())


def _noise(count: int, start: int) -> np.ndarray:
    """Incompressible numbers from 0 to 1."""
    start %= SLICE
    return np.resize(_NOISE[start:], count)
