"""Updates of light curves that are 500 KB already, beside reading, changing and writing one object.

What is 500 KB as a survey sends it, 400 B a row of history in real Rubin packets, is 1,250 points.
As rows of the table that is 85 KB, but nobody reads or writes them at an update: an update is the
rows it brings: a detection and a forced point are new. With them Rubin sends the history of twelve
months again, 125 rows of such an object; the table takes these as well, as one of them may be new,
and drops the repeats when they meet in a merge.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.settings import Settings
from stampede.store.compaction import compact
from stampede.store.coverage import Coverage
from stampede.store.s3 import S3Objects
from stampede.store.tables import DETECTIONS, Table
from stampede_bench.bucket import clear, open_bucket
from stampede_bench.counting_store import Counted
from stampede_bench.figures import Context, Figure, Must, Rival
from stampede_bench.images import KB, noise, seconds
from stampede_bench.servers import servers
from stampede_bench.synthetic import FLUSH, points

CURVE_BYTES = 500 * KB
CURVE_POINTS = 1250
ROW_BYTES = CURVE_BYTES // CURVE_POINTS  # as a survey sends it
NEW = 2  # points
BROUGHT = {"what is new": NEW, "twelve months of history sent again": 125}
THREADS = (4, 8, 16)  # of the other way
RATE, RATE_AIM = Must(">=", 10.0, ratio=True), Must(">=", 30.0, ratio=True)
BYTES, BYTES_AIM = Must("<=", 1 / 50, ratio=True), Must("<=", 1 / 200, ratio=True)
# A night of a survey, 10 million alerts, in levels that its rows go up; then all have met that
# were sent twice. And the levels of ten years.
NIGHT_LEVELS = float(np.log(1e7 / FLUSH) / np.log(Settings().fanout))
ALL_LEVELS = float(np.log(1e10 / FLUSH) / np.log(Settings().fanout))


class Cost(NamedTuple):
    """Updates a second, compaction included; bytes of an update: appended, and at a merge."""

    rate: float
    appended: float
    merged: float


def measure(context: Context) -> Iterator[Figure]:
    """Both ways, in the same Ceph."""
    with servers(context, kafka=False) as running:
        bucket = open_bucket(running.settings("bench-lightcurve"))
        curves = context.scaled(400, 100, least=8)
        context.progress(f"{curves} light curves: read, change, write an object of 500 KB each")
        other, threads = whole_objects(bucket, curves)
        clear(bucket)
        rival = Rival(f"an object of 500 KB each, {threads} at once", other)
        for what, rows in BROUGHT.items():
            batch = context.scaled(FLUSH, 60, least=4)
            context.progress(f"the table, {what}")
            found = table_of(bucket, batch, rows)
            clear(bucket)
            yield from figures(f"light curves of 500 KB, {what}", rows, found, rival)


def figures(subject: str, rows: int, cost: Cost, rival: Rival) -> Iterator[Figure]:
    """Of one kind of update."""
    # An update is judged by what it adds, as the object beside it is given no more.
    judged = rows == NEW
    must, aim = (RATE, RATE_AIM) if judged else (None, None)
    yield Figure(subject, "updates", cost.rate, "/s", rival, must, None, aim)
    yield Figure(subject, "appended", cost.appended / KB, "KB/update")
    again = Rival("appended", cost.appended / KB)
    yield Figure(subject, "written again at a merge", cost.merged / KB, "KB/update", again)
    must, aim = (BYTES, BYTES_AIM) if judged else (None, None)
    for when, levels in (("a night", NIGHT_LEVELS), ("ten years", ALL_LEVELS)):
        within = min(levels, NIGHT_LEVELS)
        written = cost.appended + cost.merged * (within + NEW / rows * (levels - within))
        one = Rival("an object of 500 KB each", CURVE_BYTES / KB)
        name = f"written in {when}, {levels:.1f} merges of every row"
        yield Figure(subject, name, written / KB, "KB/update", one, must, None, aim)


def whole_objects(bucket: S3Objects, curves: int) -> tuple[float, int]:
    """Updates a second of light curves that are objects, and how many at once are fastest."""

    def put(number: int) -> None:
        bucket.put(f"curves/{number}", noise(CURVE_BYTES, number))

    def update(number: int) -> None:
        data = bucket.get(f"curves/{number}")
        bucket.put(f"curves/{number}", data + bytes(noise(ROW_BYTES, number)))

    seconds(put, range(curves), 4)
    found = {threads: curves / seconds(update, range(curves), threads) for threads in THREADS}
    threads = max(found, key=lambda each: found[each])
    return found[threads], threads


def table_of(bucket: S3Objects, batch: int, rows: int) -> Cost:
    """Updates in batches, each of other objects, compacted as they come; then one is looked at."""
    fanout = Settings().fanout
    batches, curves = fanout**2, 2 * fanout * batch
    counted = Counted(bucket)
    table = Table(counted, DETECTIONS, threads=4)
    for first in range(0, curves, batch):  # what there is already, as one run
        table.append(points(range(first, first + batch), 0, CURVE_POINTS), Coverage())
    compact(table, datetime.now(UTC), major=True, grace=timedelta(0))
    given = [points_at(number, batch, curves, rows) for number in range(batches)]
    counted.clear()
    merged = 0.0
    begin = perf_counter()
    for number, some in enumerate(given, 1):
        table.append(some, Coverage.of({("bench", 0): range(number * batch, (number + 1) * batch)}))
        if number == fanout:
            appended = counted.bytes["put"]
        if number % fanout == 0:
            one = compact(table, datetime.now(UTC), fanout=fanout, grace=timedelta(hours=1))
            merged = merged or one.bytes_written
    spent = perf_counter() - begin
    check(table, curves, batches * batch // curves, rows)
    updates = fanout * batch  # of the first merge: all of different objects
    return Cost(batches * batch / spent, appended / updates, merged / updates)


def points_at(number: int, batch: int, curves: int, rows: int) -> pa.Table:
    """The rows of one batch of updates: to each light curve two new points, and what was before."""
    first = number * batch
    whose = range(first % curves, first % curves + batch)
    end = CURVE_POINTS + 2 * (first // curves + 1)
    return points(whose, end - rows, end)


def check(table: Table, curves: int, updated: int, rows: int) -> None:
    """A light curve has the points it should have, each once."""
    table.refresh()
    some = points([curves - 1], 0, CURVE_POINTS + 2 * updated)
    found = table.lookup(some["object_id"].unique().to_pylist())
    assert found.num_rows == some.num_rows, (found.num_rows, some.num_rows, rows)
    assert found["source_id"].equals(some["source_id"])
