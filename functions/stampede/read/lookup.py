"""From ids to stored data: the only module of the read service that reads the store.

Every method blocks, except those whose name begins with ``cached``; routes run them in threads.
"""

from collections.abc import Sequence

import pyarrow as pa

from stampede.read.errors import NoThumbnail, UnknownObject
from stampede.read.images import Images
from stampede.read.locations import (
    CutoutLocation,
    ThumbnailLocation,
    cutout_locations,
    of_one_alert,
    thumbnail_locations,
)
from stampede.read.points import in_time
from stampede.read.refreshing_table import RefreshingTable
from stampede.settings import Settings
from stampede.store.objects import Objects
from stampede.store.schema import CUTOUTS, DETECTIONS, THUMBNAILS, TableSpec
from stampede.store.tables import Table


class Lookup:
    """The tables and the packs; `relist_on_miss` as in `RefreshingTable`."""

    def __init__(self, objects: Objects, settings: Settings, relist_on_miss: bool = True) -> None:
        self.objects = objects
        self.images = Images(objects, settings.cutout_days)
        # Five tables share the cache: two in each of the two lookups, and the table of thumbnails,
        # which only small queries read.
        age, stale = settings.refresh_seconds, settings.stale_seconds

        def table(spec: TableSpec, relist: bool) -> RefreshingTable:
            whole = Table(objects, spec, settings.cache_bytes // 5)
            return RefreshingTable(whole, age, relist, stale)

        self.cutouts = table(CUTOUTS, relist_on_miss)
        self.detections = table(DETECTIONS, relist_on_miss)
        # Do not relist on a miss: without the thumbnail function every request would list.
        self.thumbnails = table(THUMBNAILS, relist=False)

    def close(self) -> None:
        """Stop the tables' threads."""
        for refreshing in (self.cutouts, self.detections, self.thumbnails):
            refreshing.table.close()

    def locations(
        self, alert_ids: Sequence[int], survey: str | None = None
    ) -> list[CutoutLocation]:
        """Where the cutouts of these alerts are, by alert id; unknown alerts are left out."""
        return cutout_locations(self.cutouts.lookup(alert_ids), survey)

    def alert(self, alert_id: int, survey: str | None = None) -> list[CutoutLocation]:
        """Where the cutouts of one alert are, in the order of `KINDS`.

        Raises `UnknownAlert`, and `AmbiguousAlert` if more than one survey has the alert.
        """
        return of_one_alert(self.locations([alert_id], survey), alert_id, survey)

    def cached_alert(self, alert_id: int, survey: str | None = None) -> list[CutoutLocation] | None:
        """What `alert` returns, from memory; None if that needs the store. Never waits."""
        rows = self.cutouts.cached([alert_id])
        if rows is None:
            return None
        return of_one_alert(cutout_locations(rows, survey), alert_id, survey)

    def thumbnail_locations(self, alert_ids: Sequence[int]) -> list[ThumbnailLocation]:
        """Where the thumbnails of these alerts are; alerts without one are left out."""
        return thumbnail_locations(self.thumbnails.lookup(alert_ids))

    def thumbnail(self, alert_id: int, survey: str | None = None) -> ThumbnailLocation:
        """Where the thumbnail of one alert is. Raises what `alert` raises, and `NoThumbnail`."""
        alert = self.alert(alert_id, survey)[0]
        for location in self.thumbnail_locations([alert_id]):
            if location.survey == alert.survey:
                return location
        raise NoThumbnail(f"no thumbnail of alert {alert_id} has been drawn yet")

    def light_curves(self, object_ids: Sequence[str]) -> pa.Table:
        """The points of these objects, by object id, then time; withdrawn points too."""
        return in_time(self.detections.lookup(object_ids))

    def light_curve(self, object_id: str) -> pa.Table:
        """The points of one object, by time. Raises `UnknownObject`."""
        rows = self.light_curves([object_id])
        if not rows.num_rows:
            raise UnknownObject(f"no detection of object {object_id} is stored")
        return rows

    def cached_light_curve(self, object_id: str) -> pa.Table | None:
        """What `light_curve` returns, from memory; None if that needs the store. Never waits."""
        rows = self.detections.cached([object_id])
        return None if rows is None else in_time(rows)

    def check_store(self) -> None:
        """Raise `StoreDown` if the store does not answer."""
        next(iter(self.objects.list("tables/")), None)
