"""From ids to stored data: the only module of the read service that reads the store.

Every method blocks, except those whose name begins with ``cached``; routes run them in threads.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa

from stampede.clock import now_mjd
from stampede.errors import NotFound
from stampede.read.errors import Gone, NoThumbnail, UnknownObject
from stampede.read.locations import (
    CutoutLocation,
    ThumbnailLocation,
    cutout_locations,
    grouped_by_request,
    no_such_cutout,
    of_one_alert,
    thumbnail_locations,
)
from stampede.read.points import in_time
from stampede.read.refreshing_table import RefreshingTable
from stampede.settings import Settings
from stampede.store.objects import Objects
from stampede.store.packs import expired, night_of
from stampede.store.schema import CUTOUTS, DETECTIONS, THUMBNAILS
from stampede.store.tables import Table


class Lookup:
    """The tables and the packs; `relist_on_miss` as in `RefreshingTable`."""

    def __init__(self, objects: Objects, settings: Settings, relist_on_miss: bool = True) -> None:
        self.objects = objects
        self._days = settings.cutout_days
        # Five tables share the cache: two in each of the two lookups, and the table of thumbnails,
        # which only small queries read.
        age, cache = settings.refresh_seconds, settings.cache_bytes // 5
        self.cutouts = RefreshingTable(Table(objects, CUTOUTS, cache), age, relist_on_miss)
        self.detections = RefreshingTable(Table(objects, DETECTIONS, cache), age, relist_on_miss)
        # Do not relist on a miss: without the thumbnail function every request would list.
        self.thumbnails = RefreshingTable(
            Table(objects, THUMBNAILS, cache), age, relist_on_miss=False
        )

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

    def fits(self, location: CutoutLocation) -> bytes:
        """The gzipped FITS file of one cutout. Raises `Gone`, and `NoSuchCutout`."""
        if location.pack is None:
            raise no_such_cutout(location.alert_id, location.kind)
        return self._get(location.pack, location.offset, location.length)

    def all_fits(
        self, locations: Sequence[CutoutLocation]
    ) -> Iterator[tuple[CutoutLocation, bytes | None]]:
        """The gzipped FITS files of many cutouts, in the order of packs; None if one is gone.

        One request reads adjacent cutouts. Cutouts that the survey did not send are left out.
        """
        for pack, group in grouped_by_request(locations):
            start, last = group[0].offset, group[-1]
            try:
                data = memoryview(self._get(pack, start, last.offset + last.length - start))
            except Gone:
                yield from ((location, None) for location in group)
                continue
            for location in group:
                first = location.offset - start
                yield location, bytes(data[first : first + location.length])

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

    def png(self, location: ThumbnailLocation) -> bytes:
        """The PNG of a thumbnail. Raises `Gone`."""
        return self._get(location.pack, location.offset, location.length)

    def _get(self, pack: str, offset: int, length: int) -> bytes:
        """A part of a pack. Raises `Gone` if retention has deleted the pack."""
        try:
            return self.objects.get(pack, offset, length)
        except NotFound:
            if not expired(pack, self._days, now_mjd()):
                raise
            retention = f"images are kept for {self._days} days"
            night = night_of(pack)
            raise Gone(f"{retention}, and this one is of the night MJD {night}") from None

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
