"""From ids to stored data: the only module of the read service that reads the store.

Every method blocks, except those whose name begins with ``cached``; routes run them in threads.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

from stampede.config.settings import Settings
from stampede.errors import Damaged, SchemaRegistryDown, TooLarge
from stampede.lookup import response_warnings
from stampede.lookup.errors import Gone, NoPacket, NoThumbnail
from stampede.lookup.light_curves import LightCurves
from stampede.lookup.packs.images import Absent, Images, Parts
from stampede.lookup.packs.locations import (
    CutoutLocation,
    ThumbnailLocation,
    cutout_locations,
    locations_of,
    of_one_alert,
    of_one_survey,
    shown,
    thumbnail_locations,
)
from stampede.lookup.packs.packet_reader import PacketLocation, Packets, packet_locations
from stampede.lookup.refreshing_table import RefreshingTable
from stampede.store.objects.object_store import Objects
from stampede.store.packs.retention import Retention
from stampede.store.runs.schema import (
    CUTOUTS,
    DETECTIONS,
    MOVING,
    PACKETS,
    POSITIONS,
    THUMBNAILS,
    TableSpec,
)
from stampede.store.tables.table import Table

if TYPE_CHECKING:
    from stampede.lookup.stored_records import StoredRecords

PACKET_MISS_AGE = 0.1
"""Seconds between two listings for alerts whose packet is not there: it is stored about as late as
the cutouts, but an alert may be without one for ever, and then every request would list."""
FEW = 500
"""Most rows that the event loop itself makes a response of if memory holds them: a thread would
only compete for the interpreter with the other threads and with the waiting loop."""

SMALL_SHARES = {
    **{"detections": 25, "cutouts": 12, "packets": 10, "positions": 8, "thumbnails": 5},
    "moving": 3,
}
LARGE_SHARES = {
    **{"detections": 12, "cutouts": 6, "packets": 6, "positions": 6, "thumbnails": 0},
    "moving": 1,
}
"""Percent of `cache_bytes` of each table in the two lookups of `read`. The rest is for the tails of
both, and for light curves as they were sent.

Points are most of what is read. With 10 % for each table, 60 ZTF light curves out of 7,300 alerts
beside 3,700 of LSST took 0.35 to 0.6 GETs each and 3.5 times as much CPU as without any. A large
query reads each part of a table once, so its lookup needs less.
"""

T = TypeVar("T")


class Lookup:
    """The tables and the packs, as small queries read them.

    Parameters
    ----------
    relist_on_miss
        Whether a lookup that finds nothing lists again. False: as large queries read them.
    """

    def __init__(self, objects: Objects, settings: Settings, relist_on_miss: bool = True) -> None:
        self.objects = objects
        self.images = Images(objects, settings.cutout_days, settings.cache_bytes // 25)
        self._retention = Retention.of(settings)
        self.packets = Packets(objects, self.images, self._retention)
        self._settings = settings
        age, stale = settings.refresh_seconds, settings.stale_seconds
        rights = self.rights = self._retention.rights

        def table(spec: TableSpec, miss_age: float | None) -> RefreshingTable:
            share = (SMALL_SHARES if relist_on_miss else LARGE_SHARES)[spec.name]
            whole = Table(objects, spec, settings.cache_bytes * share // 100)
            return RefreshingTable(whole, age, miss_age if relist_on_miss else None, stale, rights)

        self.cutouts = table(CUTOUTS, 0.0)
        self.detections = table(DETECTIONS, 0.0)
        self.light_curves = LightCurves(self.detections)
        # Do not relist on a miss: without the thumbnail function every request would list.
        self.thumbnails = table(THUMBNAILS, None)
        self.positions = table(POSITIONS, None)
        self.moving = table(MOVING, None)
        stored = settings.packet_days != 0
        self.packet_locations = table(PACKETS, PACKET_MISS_AGE if stored else None)

    def close(self) -> None:
        """Stop the tables' threads."""
        for each in (
            self.cutouts,
            self.detections,
            self.positions,
            self.moving,
            self.thumbnails,
            self.packet_locations,
        ):
            each.table.close()

    def locations(
        self, alert_ids: Sequence[int], survey: str | None = None
    ) -> list[CutoutLocation]:
        """Where the cutouts of these alerts are, by alert id; unknown alerts are left out."""
        found = cutout_locations(self.cutouts.lookup(alert_ids), survey)
        return shown(found, self._retention.expired)

    def by_alert(self, alert_ids: Collection[int]) -> dict[tuple[int, str], list[CutoutLocation]]:
        """What `locations` returns, by id and survey."""
        found: dict[tuple[int, str], list[CutoutLocation]] = {}
        for one in self.locations(sorted(alert_ids)):
            found.setdefault((one.alert_id, one.survey), []).append(one)
        return found

    def alert(self, alert_id: int, survey: str | None = None) -> list[CutoutLocation]:
        """Where the cutouts of one alert are, in the order of `KINDS`.

        Raises `UnknownAlert`, and `AmbiguousAlert` if more than one survey has the alert.
        """
        return of_one_alert(self.locations([alert_id], survey), alert_id, survey)

    def cached_alert(self, alert_id: int, survey: str | None = None) -> list[CutoutLocation] | None:
        """What `alert` returns, from memory; None if that needs the store or takes long."""
        rows = self.cutouts.cached_values(alert_id, FEW)  # it may come in thousands of versions
        if rows is None:
            return None
        found = locations_of(rows, survey)
        if not all(one.pack is None or self.rights.holds(one.pack) for one in found):
            return None
        found = shown(found, self._retention.expired)
        return of_one_alert(found, alert_id, survey)

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

    def packet(self, alert_id: int, survey: str | None = None) -> PacketLocation:
        """Where the packet of one alert is. Raises what `alert` raises, and `NoPacket`.

        Of several versions one that is stored with all its images, as far as any is, of the latest
        night, then with the fewest rows cut out, then of the greatest CRC-32.
        """
        found = packet_locations(self.packet_locations.lookup([alert_id]), survey)
        if not found:
            self.alert(alert_id, survey)
            raise NoPacket(f"alert {alert_id} was stored without its packet")
        return self._best(of_one_survey(found, alert_id))

    def kept_packets(self, alert_ids: Sequence[int]) -> list[PacketLocation]:
        """Where the packets of these alerts are, one version of each as `packet` chooses.

        Alerts of which none is stored, or none is kept any more, are left out.
        """
        found = packet_locations(self.packet_locations.lookup(alert_ids)) if alert_ids else []
        versions: dict[tuple[int, str], list[PacketLocation]] = {}
        for one in found:
            if not self.packets.expired(one):
                versions.setdefault((one.alert_id, one.survey), []).append(one)
        return [*map(self._best, versions.values())]

    def _best(self, versions: Sequence[PacketLocation]) -> PacketLocation:
        """The version of an alert's packet that `packet` returns."""
        if len(versions) == 1:
            return versions[0]
        first = versions[0]
        cutouts = cutout_locations(self.cutouts.lookup([first.alert_id]), first.survey)

        def rank(one: PacketLocation) -> tuple[bool, int, int, int]:
            whole = self.packets.whole(one, cutouts)
            return whole, math.floor(one.mjd), -(one.rows_cut or 0), one.crc32

        return max(versions, key=rank)

    def record(
        self, alert_id: int, survey: str, read: Callable[["StoredRecords", bytes], T]
    ) -> T | None:
        """What `read` makes of the message of an alert, without its images.

        None if its packet is not stored any more, or not yet. It is noted if it is stored and
        cannot be shown. Raises `StoreDown`, and as `read`, other than for the message.
        """
        try:
            packet = self.packet(alert_id, survey)
            return read(self.records, self.packets.without_images(packet))
        except (NoPacket, Gone):
            return None
        except Damaged:
            response_warnings.may_lack("the packet of this alert is damaged")
        except TooLarge:
            response_warnings.may_lack("the fields of this alert are too many: take its packet")
        except SchemaRegistryDown:
            response_warnings.may_lack("the schema registry does not answer: try again")
        return None

    @cached_property
    def records(self) -> "StoredRecords":
        """Decodes packets."""
        from stampede.lookup.stored_records import StoredRecords  # few requests need fastavro

        return StoredRecords(self._settings)

    def message(self, packet: PacketLocation) -> bytes:
        """The message of an alert, byte for byte. Raises as `Packets.message`."""
        rows = self.cutouts.lookup([packet.alert_id]) if packet.cuts else None
        cutouts = () if rows is None else cutout_locations(rows, packet.survey)
        return self.packets.message(packet, cutouts)

    def images_of(
        self, messages: Collection[tuple[int, str, int]]
    ) -> dict[tuple[int, str, str, int | None], bytes | Absent]:
        """The images that these messages may hold: by id, survey, kind and `message_crc32`.

        `messages` are alert id, survey and CRC-32 of each.
        """
        return _by_message(self.images.many(self._of_messages(messages)))

    def parts_of(
        self, messages: Collection[tuple[int, str, int]]
    ) -> dict[tuple[int, str, str, int | None], Parts]:
        """As `images_of`, not verified: for a caller that has the checksum of the message."""
        return _by_message(self.images.unverified(self._of_messages(messages)))

    def _of_messages(self, messages: Collection[tuple[int, str, int]]) -> list[CutoutLocation]:
        """The locations of cutouts that say one of these messages, or none."""
        if not messages:
            return []
        wanted = set(messages)
        rows = self.cutouts.lookup(sorted({alert_id for alert_id, _, _ in wanted}))
        return [
            one
            for one in cutout_locations(rows)
            if one.message_crc32 is None or (one.alert_id, one.survey, one.message_crc32) in wanted
        ]

    def check_store(self) -> None:
        """Raise `StoreDown` if the store does not answer."""
        next(iter(self.objects.list("tables/")), None)


def _by_message(
    found: Iterable[tuple[CutoutLocation, T]],
) -> dict[tuple[int, str, str, int | None], T]:
    return {
        (place.alert_id, place.survey, place.kind, place.message_crc32): each
        for place, each in found
    }
