"""Objects by position: small cones in small and large tables, a large cone, and what a row costs.

The positions lie in a field of 10 by 10 degrees at the equator, as dense with 10^7 as the Galactic
plane, so a cone of one degree has 3 % of them.
"""

from collections.abc import Iterator
from itertools import pairwise
from time import perf_counter, process_time

import numpy as np
import pyarrow as pa

from stampede.alerts.positions import positions_of
from stampede.errors import StampedeError
from stampede.read.cone_search import Cone, nearest_first
from stampede.read.cone_writers import JsonWriter
from stampede.read.refreshing_table import RefreshingTable
from stampede.read.sky import ARCSEC, Place
from stampede.store.coverage import Coverage
from stampede.store.objects import Objects
from stampede.store.schema import POSITIONS
from stampede.store.tables import Table
from stampede_bench.bucket import clear, open_bucket
from stampede_bench.figures import Context, Figure, Must, Rival, percentile
from stampede_bench.servers import servers

SUBJECT = "objects by position"
RUN_ROWS = 1_000_000
FIELD = 10.0  # degrees
RADIUS = 5 / ARCSEC
LARGE = 1.0  # degrees
FASTEST, GROWTH = Must("<=", 50.0), Must("<=", 2.0, ratio=True)
CPU, SPACE, STREAM = Must("<=", 3.0), Must("<=", 70.0), Must(">=", 100_000.0)


def measure(context: Context) -> Iterator[Figure]:
    """A small and a large table in the same Ceph, one after the other."""
    few = context.scaled(100_000, 100_000, least=1000)
    many = context.scaled(10_000_000, 1_000_000, least=2000)
    with servers(context, kafka=False) as running:
        bucket = open_bucket(running.settings("bench-cone"))
        times = {}
        for count in (few, many):
            clear(bucket)
            context.progress(f"{count:,} positions")
            spent, size = fill(bucket, count)
            times[count] = list(small_cones(bucket, count, context.scaled(2000, 500, least=10)))
        yield Figure(SUBJECT, "CPU time of deriving and storing a row", spent, "us", None, CPU)
        yield Figure(SUBJECT, "space of a row", size, "bytes", None, SPACE)
        small = Rival(f"p99 among {few:,}", percentile(times[few], 99))
        for share in (50, 99):
            value = percentile(times[many], share)
            name = f'p{share} of a cone of 5" among {many:,}'
            yield Figure(SUBJECT, name, value, "ms", None, FASTEST if share == 99 else None)
        yield Figure(SUBJECT, f"p99 among {many:,}", value, "ms", small, GROWTH)
        yield Figure(
            SUBJECT, "a cone of 1 degree as JSON", large_cone(bucket), "rows/s", must=STREAM
        )
        clear(bucket)


def points(first: int, end: int) -> pa.Table:
    """One detection of each object of these numbers."""
    random = np.random.default_rng(first)
    count = end - first
    no = np.zeros(count, bool)
    return pa.table(
        {
            "object_id": pa.array(np.arange(first, end) + 170_000_000_000_000_000).cast("string"),
            "survey": pa.array(["lsst"]).take(pa.array(np.zeros(count, np.int8))),
            **{"forced": no, "limit": no, "withdrawn": no},
            "source_id": np.arange(first, end),
            "mjd": random.uniform(60_000, 61_000, count),
            "ra": random.uniform(0, FIELD, count),
            "dec": random.uniform(-FIELD / 2, FIELD / 2, count),
        }
    )


def fill(objects: Objects, count: int) -> tuple[float, float]:
    """Store so many positions; microseconds of CPU time, and bytes, of each."""
    table, spent = Table(objects, POSITIONS, threads=1), 0.0
    for first, end in pairwise([*range(0, count, RUN_ROWS), count]):
        rows = points(first, end)
        begin = process_time()
        table.append(positions_of(rows), Coverage())
        spent += process_time() - begin
    table.close()
    size = sum(info.size for info in objects.list("tables/positions/"))
    return 1e6 * spent / count, size / count


def small_cones(objects: Objects, count: int, cones: int) -> Iterator[float]:
    """Milliseconds of each cone of 5" around the position of an object."""
    table = RefreshingTable(Table(objects, POSITIONS), 3600.0, None)
    run = points(0, min(RUN_ROWS, count))
    chosen = np.random.default_rng(1).integers(0, run.num_rows, cones + 1)
    places = zip(run["ra"].to_numpy()[chosen], run["dec"].to_numpy()[chosen], strict=True)
    for number, place in enumerate(places):
        begin = perf_counter()
        found = sum(rows.num_rows for rows in nearest_first(table, Cone(Place(*place), RADIUS)))
        if not found:
            raise StampedeError("a cone around an object does not find it")
        if number:  # the first lists the table
            yield 1e3 * (perf_counter() - begin)
    table.table.close()


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
