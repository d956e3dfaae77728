"""Objects by position: small cones in small and large tables, a large cone, and what a row costs.

Both tables have the runs that compaction leaves. No rows are in memory: otherwise all of a small
table would be, and few of a large one.

The positions lie in a field of 10 by 10 degrees at the equator, as dense with 10^7 as the Galactic
plane, so a cone of one degree has 3 % of them.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa

from stampede.alerts.positions import positions_of
from stampede.errors import StampedeError
from stampede.lookup.cone_search import Cone, nearest_first
from stampede.lookup.refreshing_table import RefreshingTable
from stampede.lookup.sky import ARCSEC, Place
from stampede.read.formats.cone_writers import JsonWriter
from stampede.store.compaction.compact import Policy, compact
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import POSITIONS
from stampede.store.tables.table import Table
from stampede_bench.figures import Bound, Context, Figure, Rival, percentile
from stampede_bench.growth.lookups import Indexes
from stampede_bench.instruments.bucket import clear, open_bucket
from stampede_bench.instruments.servers import servers
from stampede_bench.instruments.synthetic import FLUSH, shape

SUBJECT = "objects by position"
RUN_ROWS = 1_000_000
FIELD = 10.0  # degrees
EVEN = (0.7548776662466927, 0.5698402909980532)  # 1/p, 1/p^2 with p^3 = p + 1
FANOUT = 8
RADIUS = 5 / ARCSEC
LARGE = 1.0  # degrees
FASTEST, GROWTH = Bound("<=", 50.0), Bound("<=", 2.0, ratio=True)
CPU, SPACE, STREAM = Bound("<=", 3.0), Bound("<=", 70.0), Bound(">=", 100_000.0)


def measure(context: Context) -> Iterator[Figure]:
    """A small and a large table in the same Ceph, asked in turns."""
    few = context.scaled(100_000, 100_000, least=1000)
    many = context.scaled(10_000_000, 1_000_000, least=2000)
    with servers(context, kafka=False) as running:
        buckets = {
            count: open_bucket(running.settings(f"bench-cone-{count}")) for count in (few, many)
        }
        for count, bucket in buckets.items():
            clear(bucket)
            context.progress(f"{count:,} positions")
            spent, size = fill(bucket, count)
        yield Figure(SUBJECT, "CPU time of deriving and storing a row", spent, "us", None, CPU)
        yield Figure(SUBJECT, "space of a row", size, "bytes", None, SPACE)
        cones = context.scaled(500, 500, least=10)
        context.progress(f"{cones:,} cones in each")
        small, large = _in_turns(*(small_cones(buckets[count], count, cones) for count in buckets))
        for share in (50, 99):
            value, beside = percentile(large, share), percentile(small, share)
            name = f'p{share} of a cone of 5" among {many:,}'
            yield Figure(SUBJECT, name, value, "ms", None, FASTEST if share == 99 else None)
            among_few = Rival(f"among {few:,}", beside)
            name = f"p{share}, growth with the table"
            yield Figure(SUBJECT, name, value, "ms", among_few, GROWTH if share == 99 else None)
        yield Figure(
            SUBJECT, "a cone of 1 degree as JSON", large_cone(bucket), "rows/s", requirement=STREAM
        )
        for bucket in buckets.values():
            clear(bucket)


def _in_turns(*times: Iterator[float]) -> Iterator[tuple[float, ...]]:
    """What each iterator gives, taken in turns, so that all see the same machine."""
    return zip(*zip(*times, strict=True), strict=True)


def points(first: int, end: int) -> pa.Table:
    """One detection of each object of these numbers, evenly over the field."""
    numbers, count = np.arange(first, end), end - first
    no = np.zeros(count, bool)
    return pa.table(
        {
            "object_id": pa.array(numbers + 170_000_000_000_000_000).cast("string"),
            "survey": pa.array(["lsst"]).take(pa.array(np.zeros(count, np.int8))),
            **{"forced": no, "limit": no, "withdrawn": no},
            "source_id": numbers,
            "programid": pa.nulls(count, pa.int32()),
            "moved": pa.nulls(count, pa.bool_()),
            "mjd": 60_000 + 1000 * (numbers * EVEN[0] ** 2 % 1),
            "ra": FIELD * (numbers * EVEN[0] % 1),
            "dec": FIELD * (numbers * EVEN[1] % 1 - 0.5),
        }
    )


def fill(objects: Objects, count: int) -> tuple[float, float]:
    """Store so many positions; microseconds of CPU time until in a run, and bytes, of each.

    The runs are those that compaction leaves (see `synthetic.shape`). The largest are merged here.
    """
    table, spent, stored = Table(objects, POSITIONS), 0.0, 0
    for run in shape(count // FLUSH, FANOUT):
        pieces = FANOUT if run.flushes * FLUSH > RUN_ROWS else 1
        for first in range(run.first, run.first + run.flushes, run.flushes // pieces):
            rows = points(first * FLUSH, (first + run.flushes // pieces) * FLUSH)
            begin = process_time()
            table.append(positions_of(rows), Coverage())
            spent += process_time() - begin
            stored += rows.num_rows
        if pieces > 1:
            compact(table, datetime.now(UTC), Policy(fanout=FANOUT, grace=timedelta(0)))
    if stored > RUN_ROWS:
        # Deletes what it read.
        compact(table, datetime.now(UTC), Policy(fanout=FANOUT, grace=timedelta(0)))
    size = sum(run.object.size for run in table.runs())
    table.close()
    return 1e6 * spent / stored, size / stored


def small_cones(objects: Objects, count: int, cones: int) -> Iterator[float]:
    """Milliseconds of each cone of 5" around the position of an object; no rows are in memory."""
    table = Table(objects, POSITIONS)
    table.refresh()
    for run in table.runs():  # a process reads each index once
        for section in range(len(run.sections.listed)) if run.sections is not None else [None]:
            table.reader.index(run, section)
    table.reader.cache = Indexes(table.reader.cache)
    refreshing = RefreshingTable(table, 3600.0, None)
    chance = np.random.default_rng(1)
    for number in chance.integers(0, count // FLUSH * FLUSH, cones).tolist():
        centre = Place(
            *(column[0].as_py() for column in points(number, number + 1).select(["ra", "dec"]))
        )
        begin = perf_counter()
        found = sum(rows.num_rows for rows in nearest_first(refreshing, Cone(centre, RADIUS)))
        yield 1e3 * (perf_counter() - begin)
        if not found:
            raise StampedeError("a cone around an object does not find it")
    table.close()


def large_cone(objects: Objects) -> float:
    """Objects a second of a cone of one degree, until the last byte."""
    table = RefreshingTable(Table(objects, POSITIONS), 3600.0, None)
    writer, rows = JsonWriter({}), 0
    begin = perf_counter()
    for found in nearest_first(table, Cone(Place(FIELD / 2, 0.0), LARGE)):
        rows += found.num_rows
        writer.add(found)
    spent = perf_counter() - begin
    table.table.close()
    return rows / spent
