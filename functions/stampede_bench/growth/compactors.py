"""Several compactors at one merge: how much of the work each does, and what they do twice."""

import multiprocessing
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from stampede.config.settings import Settings
from stampede.store.compaction.compact import Policy, compact
from stampede.store.open import open_objects
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from stampede_bench.figures import Context, Figure, Rival
from stampede_bench.instruments import synthetic

COMPACTORS = (1, 2, 4)
PARTS = 32  # of the merged run, about
SUBJECT = "one merge by several compactors, each a process"


def shared(context: Context) -> Iterator[Figure]:
    """The same merge by one, two and four compactors that begin at once."""
    fanout = Settings().fanout
    alerts = context.scaled(100_000, 50_000, least=2_000)
    run_rows = max(1, fanout * alerts * synthetic.POINTS // PARTS)
    alone = 0.0
    with ProcessPoolExecutor(max(COMPACTORS), multiprocessing.get_context("spawn")) as pool:
        list(pool.map(time.sleep, [0.5] * max(COMPACTORS)))  # all of them are started
        for count in COMPACTORS:
            place = context.scratch / f"compactors-{count}"
            table = table_in(place)
            for number in range(fanout):
                table.append(*synthetic.flush(number, alerts, 10 * alerts))
            begin = time.perf_counter()
            turns = [PARTS * number // count for number in range(count)]
            written = list(pool.map(partial(merge, place, run_rows), turns))
            seconds = time.perf_counter() - begin
            alone = alone or seconds
            table.refresh()
            rival = Rival("by one", alone) if count > 1 else None
            yield Figure(SUBJECT, f"by {count}, until all have ended", seconds, "s", rival)
            model = Rival("parts of the run", len(table.runs()))
            yield Figure(SUBJECT, f"by {count}, parts written", sum(written), "parts", model)
            most = Rival("by all", sum(written))
            yield Figure(SUBJECT, f"by {count}, parts by the busiest", max(written), "parts", most)


def merge(place: Path, run_rows: int, turn: int) -> int:
    """Compact the table in a directory; the number of parts that this compactor wrote."""
    table = table_in(place)
    report = compact(
        table, datetime.now(UTC), Policy(run_rows=run_rows, slice_rows=run_rows // 2, turn=turn)
    )
    return len(report.written)


def table_in(place: Path) -> Table:
    """The table in a directory."""
    return Table(open_objects(Settings(store=f"file://{place.absolute()}")), DETECTIONS)
