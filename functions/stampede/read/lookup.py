"""From ids to what the store has of them: the only module here that reads the store.

Every method blocks; `stampede.read.app` runs them in threads.
"""

import threading
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from stampede.alerts.columns import KINDS
from stampede.clock import now_mjd
from stampede.errors import NotFound
from stampede.read.problems import (
    AmbiguousAlert,
    Gone,
    NoSuchCutout,
    NoThumbnail,
    UnknownAlert,
    UnknownObject,
)
from stampede.settings import Settings
from stampede.store.objects import Objects
from stampede.store.packs import expired, night_of
from stampede.store.schema import CUTOUTS, DETECTIONS, THUMBNAILS
from stampede.store.tables import Table

GAP = 16 << 10
"""Bytes between two cutouts that are read over rather than asked for twice: about what comes
in the 2 ms that one more request takes."""
SPAN = 4 << 20
"""Most bytes asked for at once."""


class CutoutLocation(NamedTuple):
    """Where one cutout lies; `pack` is None where the survey sent none of this kind."""

    alert_id: int
    survey: str
    kind: str
    object_id: str
    mjd: float
    pack: str | None
    offset: int
    length: int


class ThumbnailLocation(NamedTuple):
    """Where the thumbnail of one alert lies."""

    alert_id: int
    survey: str
    pack: str
    offset: int
    length: int


class RefreshingTable:
    """A table whose listing is never too old.

    A listing older than `max_age` seconds is renewed by one of the lookups that meet it, while
    the others go on with what they have. Where it is twice as old they wait for the new one, but
    not for a store that hangs, into which nothing new comes either. With `sure`, a lookup that
    finds nothing lists again before it says so, once for all that wait.
    """

    def __init__(self, table: Table, max_age: float, sure: bool) -> None:
        self.table = table
        self._max_age = max_age
        self._sure = sure
        self._listed = self._began = float("-inf")  # the listing there is; the last one begun
        self._lock = threading.Lock()

    def lookup(self, values: Sequence) -> pa.Table:
        """As `Table.lookup`."""
        began = time.monotonic()
        self.list_since(began - self._max_age, to_its_end=False)
        rows = self.table.lookup(values)
        if self._sure and not rows.num_rows and self.list_since(began):
            rows = self.table.lookup(values)
        return rows

    def kept(self, values: Sequence) -> pa.Table | None:
        """As `lookup`, of what is in memory; None where there is nothing, or not all of it."""
        too_old = self._listed < time.monotonic() - self._max_age
        if too_old and (not self._lock.locked() or self._patience()):
            return None
        rows = self.table.cached(values)
        return rows if rows is not None and rows.num_rows else None

    def list_since(self, moment: float, to_its_end: bool = True) -> bool:
        """List unless that was done since `moment` (of `time.monotonic`); whether it was now.

        Whoever lists already is waited for, to the end or as long as `_patience` says.
        """
        if self._listed >= moment:
            return False
        mine = self._lock.acquire(blocking=False)
        if not mine and not self._lock.acquire(timeout=-1 if to_its_end else self._patience()):
            return False
        try:
            if self._listed < moment:
                self._began = time.monotonic()
                self.table.refresh()
                self._listed = self._began
            return True
        finally:
            self._lock.release()

    def _patience(self) -> float:
        """How many seconds to wait for a listing that is under way; -1, to its end."""
        now = time.monotonic()
        if self._listed < 0:
            return -1  # there is none
        if self._listed >= now - 2 * self._max_age:
            return 0
        return max(0.0, self._began + self._max_age - now)


class Lookup:
    """The tables and the packs; `sure` as in `RefreshingTable`."""

    def __init__(self, objects: Objects, settings: Settings, sure: bool = True) -> None:
        self.objects = objects
        self._days = settings.cutout_days
        # Two lookups of two tables; thumbnails are for small queries only.
        age, cache = settings.refresh_seconds, settings.cache_bytes // 5
        self.cutouts = RefreshingTable(Table(objects, CUTOUTS, cache), age, sure)
        self.detections = RefreshingTable(Table(objects, DETECTIONS, cache), age, sure)
        # Never sure: where nothing draws thumbnails, no reader shall list the store for one.
        self.drawn = RefreshingTable(Table(objects, THUMBNAILS, cache), age, sure=False)

    def close(self) -> None:
        """Stop the tables' threads."""
        for fresh in (self.cutouts, self.detections, self.drawn):
            fresh.table.close()

    def places(self, alert_ids: Sequence[int], survey: str | None = None) -> list[CutoutLocation]:
        """The cutouts of these alerts, ascending by alert id; none of unknown alerts."""
        return places_in(self.cutouts.lookup(alert_ids), survey)

    def alert(self, alert_id: int, survey: str | None = None) -> list[CutoutLocation]:
        """The cutouts of one alert in the order of `KINDS`.

        Raises `UnknownAlert`, and `AmbiguousAlert` where both surveys have it.
        """
        return one_alert(self.places([alert_id], survey), alert_id, survey)

    def kept_alert(self, alert_id: int, survey: str | None = None) -> list[CutoutLocation] | None:
        """As `alert`, of what is in memory; None where that takes the store. Never waits."""
        rows = self.cutouts.kept([alert_id])
        return None if rows is None else one_alert(places_in(rows, survey), alert_id, survey)

    def cutout(self, alert_id: int, kind: str, survey: str | None = None) -> CutoutLocation:
        """One cutout that the survey did send. Raises as `alert`, and `NoSuchCutout`."""
        return sent(self.alert(alert_id, survey), kind)

    def fits(self, place: CutoutLocation) -> bytes:
        """The gzip file of the FITS file of one cutout. Raises `Gone`."""
        assert place.pack is not None
        return self._get(place.pack, place.offset, place.length)

    def all_fits(
        self, places: Sequence[CutoutLocation]
    ) -> Iterator[tuple[CutoutLocation, bytes | None]]:
        """The gzip files of many, neighbours in one request, in the order of packs.

        None for each that is gone.
        """
        stored = [place for place in places if place.pack is not None]
        stored.sort(key=lambda place: (place.pack, place.offset))
        for some in _neighbours(stored):
            first, last = some[0], some[-1]
            assert first.pack is not None
            length = last.offset + last.length - first.offset
            try:
                data = memoryview(self._get(first.pack, first.offset, length))
            except Gone:
                yield from ((place, None) for place in some)
                continue
            for place in some:
                start = place.offset - first.offset
                yield place, bytes(data[start : start + place.length])

    def pictures(self, alert_ids: Sequence[int]) -> list[ThumbnailLocation]:
        """The thumbnails of these alerts, of those that have one."""
        rows = self.drawn.lookup(alert_ids)
        columns = (rows[name].to_pylist() for name in ThumbnailLocation._fields)
        return [ThumbnailLocation(*values) for values in zip(*columns, strict=True)]

    def thumbnail(self, alert_id: int, survey: str | None = None) -> ThumbnailLocation:
        """The thumbnail of one alert. Raises as `alert`, and `NoThumbnail`."""
        one = self.alert(alert_id, survey)[0]
        for picture in self.pictures([alert_id]):
            if picture.survey == one.survey:
                return picture
        raise NoThumbnail(f"no thumbnail of alert {alert_id} has been drawn yet")

    def png(self, picture: ThumbnailLocation) -> bytes:
        """The PNG of a thumbnail. Raises `Gone`."""
        return self._get(picture.pack, picture.offset, picture.length)

    def _get(self, pack: str, offset: int, length: int) -> bytes:
        """A part of a pack. Raises `Gone` where retention has deleted it."""
        try:
            return self.objects.get(pack, offset, length)
        except NotFound:
            if not expired(pack, self._days, now_mjd()):
                raise
            kept = f"images are kept for {self._days} days"
            raise Gone(f"{kept}, and this one is of the night MJD {night_of(pack)}") from None

    def light_curves(self, object_ids: Sequence[str]) -> pa.Table:
        """The points of these objects, by object id and then in time; withdrawn ones too."""
        return in_time(self.detections.lookup(object_ids))

    def kept_light_curve(self, object_id: str) -> pa.Table | None:
        """As `light_curve`, of what is in memory; None where that takes the store. Never waits."""
        rows = self.detections.kept([object_id])
        return None if rows is None else in_time(rows)

    def light_curve(self, object_id: str) -> pa.Table:
        """The points of one object in time. Raises `UnknownObject`."""
        rows = self.light_curves([object_id])
        if not rows.num_rows:
            raise UnknownObject(f"no detection of object {object_id} is stored")
        return rows

    def reachable(self) -> None:
        """Raises `StoreDown` where the store does not answer."""
        next(iter(self.objects.list("tables/")), None)


def places_in(rows: pa.Table, survey: str | None) -> list[CutoutLocation]:
    """Rows of the table `cutouts` as places, those of `survey` if one is given."""
    columns = (rows[name].to_pylist() for name in CutoutLocation._fields)
    places = map(CutoutLocation._make, zip(*columns, strict=True))
    return [place for place in places if survey in (None, place.survey)]


def one_alert(
    places: list[CutoutLocation], alert_id: int, survey: str | None
) -> list[CutoutLocation]:
    """The places of one alert in the order of `KINDS`. Raises as `Lookup.alert`."""
    if not places:
        where = f"of survey {survey} " if survey else ""
        raise UnknownAlert(f"no alert {alert_id} {where}is stored")
    if len({place.survey for place in places}) > 1:
        raise AmbiguousAlert("survey", f"alert {alert_id} is in both surveys: add ?survey=")
    return by_kind(places)


def sent(places: Sequence[CutoutLocation], kind: str) -> CutoutLocation:
    """The cutout of that kind of an alert that has one. Raises `NoSuchCutout`."""
    for place in places:
        if place.kind == kind and place.pack is not None:
            return place
    raise NoSuchCutout(f"the survey sent no {kind} cutout with alert {places[0].alert_id}")


def in_time(rows: pa.Table) -> pa.Table:
    """Points by object id and then in time."""
    return rows.sort_by([("object_id", "ascending"), ("mjd", "ascending")])


def by_kind(places: Sequence[CutoutLocation]) -> list[CutoutLocation]:
    """Places in the order of `KINDS`."""
    return sorted(places, key=lambda place: KINDS.index(place.kind))


def _neighbours(places: Sequence[CutoutLocation]) -> Iterator[list[CutoutLocation]]:
    """Places, sorted by pack and offset, parted where a gap is not worth reading."""
    some: list[CutoutLocation] = []
    for place in places:
        if some and (
            place.pack != some[-1].pack
            or place.offset - (some[-1].offset + some[-1].length) > GAP
            or place.offset + place.length - some[0].offset > SPAN
        ):
            yield some
            some = []
        some.append(place)
    if some:
        yield some


def select(
    rows: pa.Table,
    bands: Sequence[str] = (),
    forced: bool | None = None,
    start: float | None = None,
    end: float | None = None,
    withdrawn: bool = False,
) -> pa.Table:
    """The points of a light curve that were asked for; MJD in [start, end]."""
    keep = [] if withdrawn else [pc.invert(rows["withdrawn"])]
    if bands:
        keep.append(pc.is_in(rows["band"], pa.array(bands, pa.string())))
    if forced is not None:
        keep.append(pc.equal(rows["forced"], forced))
    if start is not None:
        keep.append(pc.greater_equal(rows["mjd"], start))
    if end is not None:
        keep.append(pc.less_equal(rows["mjd"], end))
    for mask in keep[1:]:
        keep[0] = pc.and_(keep[0], mask)
    return rows.filter(keep[0]) if keep else rows
