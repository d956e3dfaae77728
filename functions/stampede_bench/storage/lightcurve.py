"""Updates of light curves of 500 KB, beside reading, changing and writing one object.

A history row takes 400 B in real Rubin packets, so 500 KB are 1,250 points. In the table they are
85 KB, but an update neither reads nor writes them: it appends the rows of the new alert. Two rows
are new, a detection and a forced point. Rubin also sends the history of twelve months again, 125
rows for such an object. The table stores these too, since any of them may be new, and drops the
repeats when a merge brings them together.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from time import perf_counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.store.compaction.compact import Policy, compact
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS
from stampede.store.s3.bucket import S3Objects
from stampede.store.tables.table import Table
from stampede_bench.figures import Context, Figure, Must, Rival
from stampede_bench.instruments.bucket import clear, open_bucket
from stampede_bench.instruments.counting_store import CountingStore
from stampede_bench.instruments.servers import servers
from stampede_bench.instruments.synthetic import FLUSH, points
from stampede_bench.reading.images import KB, noise, seconds

CURVE_BYTES = 500 * KB
CURVE_POINTS = 1250
ROW_BYTES = CURVE_BYTES // CURVE_POINTS  # in a survey's packets
NEW = 2  # points per update
UPDATES = {"what is new": NEW, "twelve months of history sent again": 125}
THREADS = (4, 8, 16)  # of the rival
RATE, RATE_AIM = Must(">=", 10.0, ratio=True), Must(">=", 30.0, ratio=True)
BYTES, BYTES_AIM = Must("<=", 1 / 50, ratio=True), Must("<=", 1 / 200, ratio=True)
# By how many levels merges move a row: within a night of 10 million alerts, after which all repeats
# have met, and within ten years.
NIGHT_LEVELS = float(np.log(1e7 / FLUSH) / np.log(Settings().fanout))
ALL_LEVELS = float(np.log(1e10 / FLUSH) / np.log(Settings().fanout))


class Cost(NamedTuple):
    """Updates a second, compaction included; bytes per update appended, and rewritten per merge."""

    rate: float
    appended: float
    merged: float


def measure(context: Context) -> Iterator[Figure]:
    """One object per light curve, and the table, in the same Ceph."""
    with servers(context, kafka=False) as running:
        bucket = open_bucket(running.settings("bench-lightcurve"))
        curves = context.scaled(400, 100, least=8)
        context.progress(f"{curves} light curves: read, change, write an object of 500 KB each")
        other, threads = whole_objects(bucket, curves)
        clear(bucket)
        rival = Rival(f"an object of 500 KB each, {threads} at once", other)
        for what, rows in UPDATES.items():
            batch = context.scaled(FLUSH // 2, 60, least=4)
            context.progress(f"the table, {what}")
            found = table_of(bucket, batch, rows)
            clear(bucket)
            yield from figures(f"light curves of 500 KB, {what}", rows, found, rival)


def figures(subject: str, rows: int, cost: Cost, rival: Rival) -> Iterator[Figure]:
    """The figures of one kind of update."""
    # The rival adds only the new points, so only that kind of update has bounds.
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
    """Updates a second of one object per light curve, and the fastest number of threads."""

    def put(number: int) -> None:
        bucket.put(f"curves/{number}", noise(CURVE_BYTES, number))

    def update(number: int) -> None:
        data = bucket.get(f"curves/{number}")
        bucket.put(f"curves/{number}", data + bytes(noise(ROW_BYTES, number)))

    seconds(put, range(curves), 4)
    found = {threads: curves / seconds(update, range(curves), threads) for threads in THREADS}
    threads = max(found, key=lambda count: found[count])
    return found[threads], threads


def table_of(bucket: S3Objects, batch: int, rows: int) -> Cost:
    """Updates in batches of different objects, with compaction; then checks one light curve."""
    fanout = Settings().fanout
    batches, curves = fanout**2, 2 * fanout * batch
    counted = CountingStore(bucket)
    table = Table(counted, DETECTIONS, threads=4)
    for first in range(0, curves, batch):  # the points so far, as one run
        table.append(points(range(first, first + batch), 0, CURVE_POINTS), Coverage())
    compact(table, datetime.now(UTC), Policy(major=True, grace=timedelta(0)))
    updates = [points_at(number, batch, curves, rows) for number in range(batches)]
    counted.clear()
    merged = 0.0
    begin = perf_counter()
    for number, points_of_batch in enumerate(updates, 1):
        covered = range(number * batch, (number + 1) * batch)
        table.append(points_of_batch, Coverage.of({("bench", 0): covered}))
        if number == fanout:
            appended = counted.bytes["put"]
        if number % fanout == 0:
            report = compact(
                table, datetime.now(UTC), Policy(fanout=fanout, grace=timedelta(hours=1))
            )
            merged = merged or report.bytes_written
    spent = perf_counter() - begin
    check(table, curves, batches * batch // curves, rows)
    first_merge = fanout * batch  # updates, all of different objects
    return Cost(batches * batch / spent, appended / first_merge, merged / first_merge)


def points_at(number: int, batch: int, curves: int, rows: int) -> pa.Table:
    """The rows of one batch of updates: two new points per light curve, and those before them."""
    first = number * batch
    updated = range(first % curves, first % curves + batch)
    end = CURVE_POINTS + 2 * (first // curves + 1)
    return points(updated, end - rows, end)


def check(table: Table, curves: int, updated: int, rows: int) -> None:
    """Raise `StampedeError` unless a light curve has each of its points exactly once."""
    table.refresh()
    expected = points([curves - 1], 0, CURVE_POINTS + 2 * updated)
    found = table.lookup(expected["object_id"].unique().to_pylist())
    if not found["source_id"].equals(expected["source_id"]):
        raise StampedeError(
            f"with {rows} rows per update, a light curve of {expected.num_rows} points does not "
            f"read back as written: it has {found.num_rows}"
        )
