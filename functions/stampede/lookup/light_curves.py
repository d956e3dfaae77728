"""The light curves of objects, from the table of their points."""

from collections.abc import Sequence

import pyarrow as pa

from stampede.lookup.errors import UnknownObject
from stampede.lookup.points import in_time
from stampede.lookup.refreshing_table import RefreshingTable
from stampede.store.runs.reader import Place


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
