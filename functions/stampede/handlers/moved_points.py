"""Moved points: detections that the survey sent again under another object.

Rubin associates a diaSource again, and sends its alert under another diaObject. Nothing is read
when an alert is stored, so nobody notices then. The table `cutouts` has an alert's rows under both
objects. `compact` meets them there when it merges, and marks the point of the earlier object.

The mark is a row like any other: a copy of the point with `moved`, and the processing time of the
present one. So it wins over the point, and loses to it if the survey moves it back. To mark again
changes nothing. It is written before the merged rows are: a crash in between repeats it.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from stampede.telemetry.logs import get_logger

log = get_logger()
Point = Mapping[str, Any]


class Alert(NamedTuple):
    """An alert by survey and id."""

    survey: str
    alert_id: int


class MovedPoints:
    """Marks points in the table `detections` of a store."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects

    def mark(self, cutouts: pa.Table) -> None:
        """Mark the points of alerts that are of several objects in these rows of `cutouts`.

        The rows are in the order of their key. Raises `StoreDown`.
        """
        if moved := objects_of_moved(cutouts):
            table = Table(self._objects, DETECTIONS, threads=1)
            try:
                table.refresh()
                names = sorted({name for objects in moved.values() for name in objects})
                marks = list(marks_of(moved, table.lookup(names).to_pylist()))
                if marks:
                    rows = pa.Table.from_pylist(marks, DETECTIONS.schema)
                    table.append(rows, Coverage())
                    log.info("marked moved points", points=len(marks))
            finally:
                table.close()


def objects_of_moved(cutouts: pa.Table) -> dict[Alert, set[str]]:
    """The objects of each alert that is of several, in rows in the order of the key."""
    if cutouts.num_rows < 2:
        return {}
    above, below = cutouts.slice(0, cutouts.num_rows - 1), cutouts.slice(1)
    same = pc.equal(above["alert_id"], below["alert_id"])
    other = pc.not_equal(above["object_id"], below["object_id"])
    places = np.flatnonzero(pc.and_(same, other).to_numpy())
    ids = pa.array(np.unique(above["alert_id"].to_numpy()[places]))
    found: dict[Alert, set[str]] = defaultdict(set)
    for row in cutouts.filter(pc.is_in(cutouts["alert_id"], ids)).to_pylist() if len(ids) else ():
        found[Alert(row["survey"], row["alert_id"])].add(row["object_id"])
    return {alert: objects for alert, objects in found.items() if len(objects) > 1}


def marks_of(moved: Mapping[Alert, set[str]], points: Iterable[Point]) -> Iterator[Point]:
    """The marked copies of points that have moved.

    The present point of an alert is that with the latest processing time. If two have the same, it
    is that of the object with the greater id: Rubin numbers its objects in the order of their time.
    """
    by_alert: dict[Alert, list[Point]] = defaultdict(list)
    for point in points:
        alert = Alert(point["survey"], point["source_id"])
        if alert in moved and not (point["forced"] or point["limit"]):
            by_alert[alert].append(point)
    for versions in by_alert.values():
        present = max(versions, key=_rank)
        for point in versions:
            if point is not present and not point["moved"]:
                yield {**point, "moved": True, "processed_mjd": present["processed_mjd"]}


def _rank(point: Point) -> tuple[float, bool, int, str]:
    name = point["object_id"]
    return point["processed_mjd"], not point["moved"], len(name), name
