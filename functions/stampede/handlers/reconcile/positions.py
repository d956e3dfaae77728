"""Derives the rows of the table `positions` again, where `detections` has points without them.

They were stored before the table was there, or a run of `positions` was lost. What is lacking
shows in the coverage of the runs, so points that did not come from Kafka are not checked.
"""

from collections.abc import Iterator
from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from stampede.alerts.columns import DETECTION
from stampede.alerts.positions import positions_of
from stampede.errors import Damaged, NotFound
from stampede.store.integrity.verification import verify
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.run import Run, RunInfo, live
from stampede.store.runs.schema import DETECTIONS, POSITIONS
from stampede.store.tables.table import Table
from stampede.telemetry.logs import get_logger

log = get_logger()

GROUPS = 50
"""Row groups of points that are in memory at once: 100,000 rows."""


def derive_positions(objects: Objects, repair: bool) -> Iterator[tuple[str, bool]]:
    """Derive what `positions` lacks, run by run; only say what, without `repair`.

    Yields the key of each part of each run of `detections` whose points had no positions, and
    whether they have now. A part that is damaged is left for `scrub`. Raises `StoreDown`.
    """
    points = Table(objects, DETECTIONS, cache_bytes=0, threads=1)
    positions = Table(objects, POSITIONS, cache_bytes=0, threads=1)
    try:
        points.refresh()
        positions.refresh()  # later: its runs are written before those of `detections`
        held = positions.coverage()
        for run in live(points.runs()):
            if not run[0].coverage - held:
                continue
            derived = repair and _derive(points, positions, run)
            yield from ((part.key, derived) for part in run)
    finally:
        points.close()
        positions.close()


def _derive(points: Table, positions: Table, run: Run) -> bool:
    """Append the positions of a run, with its coverage last; False if it is damaged or gone."""
    waiting = POSITIONS.schema.empty_table()
    try:
        for rows in chain.from_iterable(_chunks(points, part) for part in run):
            if waiting.num_rows:
                positions.append(waiting, Coverage())
            waiting = positions_of(rows)
    except (Damaged, NotFound) as error:
        log.error("positions not derived", key=run[0].key, why=error.message)
        return False
    positions.append(waiting, run[0].coverage)
    return True


def _chunks(points: Table, part: RunInfo) -> Iterator[pa.Table]:
    """The rows of a part, in chunks; all rows of an object are in one chunk.

    Raises `Damaged`, `NotFound`, `StoreDown`.
    """
    verify(points.objects, part.object)  # not every page says that it is damaged
    file = points.reader.open(part)
    rest = DETECTION.empty_table().replace_schema_metadata()
    for start in range(0, len(file.numbers), GROUPS):
        rows = pa.concat_tables([rest, *file.read(file.numbers[start : start + GROUPS])])
        if start + GROUPS < len(file.numbers):
            of_last = pc.equal(rows["object_id"], rows["object_id"][-1])
            rest = rows.filter(of_last)
            rows = rows.filter(pc.invert(of_last))
        yield rows
