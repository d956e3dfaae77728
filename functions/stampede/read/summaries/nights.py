"""The nights of the store, and the alerts of one, the latest first.

A night is a day of MJD (TAI). A pack has the alerts of one night; one of an earlier version is in
the folder of its latest alert's night.
"""

from datetime import timedelta
from itertools import islice
from typing import NamedTuple

from stampede.lookup.packs.pack_alerts import PackAlerts, PackedAlert
from stampede.lookup.ttl_cache import TtlCache
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.packs.merged_inputs import KEPT_DAYS, MergedInputs
from stampede.store.packs.night_keys import packed_nights
from stampede.store.packs.pack_name import PackName
from stampede.store.programmes.rights import EVERYTHING, Rights
from stampede.store.runs.schema import CUTOUT_PACKS

MAX_AGE = 10.0
"""Seconds that a listing is used for: to list takes a request for a thousand packs."""
LISTED = 10_000
"""Packs of a night whose alerts can be paged through."""
KEPT_NIGHTS = 3
"""Listings that are kept in memory: 10 MB at most."""


def nights_of(objects: Objects) -> list[int]:
    """The nights that have packs, the latest first. Raises `StoreDown`.

    Takes a request for a thousand nights.
    """
    return packed_nights(objects, CUTOUT_PACKS)[::-1]


def digest_of(pack: ObjectInfo) -> str:
    """The digest in a pack's name: 32 hexadecimal digits."""
    name = PackName.parse(pack.key)
    return name.digest if name else ""


def folder_of_night(night: int) -> str:
    """The folder of a night's packs."""
    return f"{CUTOUT_PACKS.prefix}/{night}/"


class NightPacks:
    """Lists the packs of nights, without those that were merged and are still there.

    Threads may share it.
    """

    def __init__(self, objects: Objects, rights: Rights = EVERYTHING) -> None:
        self._objects, self._rights = objects, rights
        self._inputs = MergedInputs(objects, timedelta(days=KEPT_DAYS))

    def of(self, night: int, most: int) -> list[ObjectInfo]:
        """The packs of a night that hold alerts of programmes that are stored.

        Of more than `most` packs the first ones, all of them: to know which were merged takes the
        others. Raises `StoreDown`.
        """
        listed = self._objects.list(folder_of_night(night))
        packs = [*islice((info for info in listed if self._rights.holds(info.key)), most)]
        if len(packs) == most:
            return packs
        merged = self._inputs.of(packs, lately=True).into
        return [info for info in packs if info.key not in merged]


class Place(NamedTuple):
    """A place among the alerts of a night: a pack's digest, and the number of an alert in it."""

    pack: str
    number: int


class Part(NamedTuple):
    """Some alerts of a night, each with its pack, and where the parts beside it are.

    `before` is where the part before ends, `after` where the next one begins; None if there is
    none.
    """

    alerts: list[tuple[ObjectInfo, PackedAlert]]
    before: Place | None
    after: Place | None


class NightAlerts:
    """The alerts of nights, by parts: those of the pack that was stored last come first.

    Threads may share it. A part takes a request for a thousand packs of the night, up to `LISTED`,
    unless they were listed in the last `MAX_AGE` seconds, and two for each pack that it reads.
    """

    def __init__(self, packs: NightPacks, alerts: PackAlerts) -> None:
        self._packs, self._alerts = packs, alerts
        self._listings = TtlCache(self._list, MAX_AGE, KEPT_NIGHTS)

    def packs(self, night: int) -> list[ObjectInfo]:
        """The packs of a night, `LISTED` at most, the one stored last first. Raises `StoreDown`."""
        return self._listings(night)

    def _list(self, night: int) -> list[ObjectInfo]:
        packs = self._packs.of(night, LISTED)
        return sorted(packs, key=lambda pack: (pack.modified, pack.key), reverse=True)

    def part(
        self, night: int, most: int, most_packs: int, start: Place | None, end: Place | None
    ) -> Part | None:
        """At most `most` alerts of at most `most_packs` packs: from `start` on, or up to `end`.

        From the first on if both are None. None if the place's pack is not there. Notes the packs
        that are damaged. Raises `StoreDown`.
        """
        packs = self.packs(night)
        first, at = 0, 0
        if place := start or end:
            numbers = {digest_of(pack): number for number, pack in enumerate(packs)}
            if place.pack not in numbers:
                return None
            first, at = numbers[place.pack], place.number
        if end:
            room = most - at
            while room > 0 and first and numbers[end.pack] - first < most_packs - (at > 0):
                first -= 1
                room -= len(self._alerts.of(packs[first]))
            at = max(0, -room)
        before = Place(digest_of(packs[first]), at) if first or at else None
        found: list[tuple[ObjectInfo, PackedAlert]] = []
        for number, pack in enumerate(packs[first:], first):
            if number - first == most_packs or len(found) == most:
                return Part(found, before, Place(digest_of(pack), 0))
            alerts = self._alerts.of(pack)
            taken = alerts[at : at + most - len(found)]
            found += [(pack, alert) for alert in taken]
            if at + len(taken) < len(alerts):
                return Part(found, before, Place(digest_of(pack), at + len(taken)))
            at = 0
        return Part(found, before, None)
