"""Light curves of objects, from the table of their points, and how many detections they have."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from stampede.alerts.positions import object_codes
from stampede.lookup.cone_search import COUNTS, PLACED
from stampede.lookup.errors import UnknownObject
from stampede.lookup.points import PointFilter, in_time, measured
from stampede.lookup.refreshing_table import RefreshingTable
from stampede.store.runs.reader import Place

MOST = 500
"""Objects whose light curves are read at once: 60 MB if each has 600 points."""
_NOTHING = None, None, None

Counts = tuple[int, float, float] | tuple[None, None, None]


class LightCurves:
    """The points of objects by time; withdrawn points too."""

    def __init__(self, detections: RefreshingTable) -> None:
        self._detections = detections

    def of_objects(self, object_ids: Sequence[str]) -> pa.Table:
        """The points of these objects, by object id, then time."""
        return in_time(self._detections.lookup(object_ids))

    def of_object(self, object_id: str) -> pa.Table:
        """The points of one object, by time. Raises `UnknownObject`."""
        rows = self.of_objects([object_id])
        if not rows.num_rows:
            raise UnknownObject(f"no detection of object {object_id} is stored")
        return rows

    def cached_places(self, object_id: str) -> list[Place] | None:
        """Where memory has what `of_object` returns; None if that needs the store. Never waits."""
        return self._detections.cached_places(object_id)

    def rows_at(self, places: Sequence[Place]) -> pa.Table | None:
        """The points at these places, by time; None if none may be given."""
        rows = self._detections.rows_at(places)
        return None if rows is None else in_time(rows)


def count_detections(found: Iterable[pa.Table], curves: LightCurves) -> Iterator[pa.Table]:
    """Add the columns `COUNTS` to rows that begin with the columns `PLACED`, `MOST` at a time.

    They are those of the light curve, withdrawn points left out. Null where no point is stored yet:
    positions are stored first. Raises `StoreDown`.
    """
    for table in found:
        for begin in range(0, max(1, table.num_rows), MOST):
            yield _with(table[begin : begin + MOST], curves)


def leave_uncounted(found: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Add the columns `COUNTS` with nulls."""
    for table in found:
        yield _append(table, [_NOTHING] * table.num_rows)


def _with(table: pa.Table, curves: LightCurves) -> pa.Table:
    names = [*zip(*(table[name].to_pylist() for name in PLACED.names[:2]), strict=True)]
    ids = sorted({object_id for object_id, _ in names})
    known = _counts(curves.of_objects(ids)) if ids else {}
    return _append(table, [known.get(name, _NOTHING) for name in names])


def _counts(points: pa.Table) -> dict[tuple[str, str], Counts]:
    """Number, and first and last time, of the detections of each object id and survey.

    Parameters
    ----------
    points
        Rows of `DETECTION`, by object id and then time.
    """
    rows = measured(PointFilter().apply(points))
    if not rows.num_rows:
        return {}
    codes, mjd = object_codes(rows), rows["mjd"].to_numpy()
    order = np.argsort(codes, kind="stable")
    begins = np.flatnonzero(np.append(True, np.diff(codes[order]) != 0))
    ends = np.append(begins[1:], len(order))
    names = rows.select(PLACED.names[:2]).take(pa.array(order[begins]))
    counts = zip(
        (ends - begins).tolist(),
        mjd[order[begins]].tolist(),
        mjd[order[ends - 1]].tolist(),
        strict=True,
    )
    return dict(zip(zip(*(each.to_pylist() for each in names), strict=True), counts, strict=True))


def _append(table: pa.Table, counts: list[Counts]) -> pa.Table:
    for number, field in enumerate(COUNTS):
        values = pa.array([each[number] for each in counts], field.type)
        table = table.append_column(field, values)
    return table
