"""How many alerts each night of the store has, without reading all of it.

The name of a pack is a digest, so the packs that a listing begins with are a fair sample of all.
"""

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import NamedTuple

from stampede.errors import Damaged, NotFound
from stampede.lookup.packs.pack_alerts import PackAlerts, alerts_of, note_damage
from stampede.lookup.ttl_cache import TtlCache
from stampede.read.summaries.nights import MAX_AGE, NightPacks, digest_of
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.object_store import ObjectInfo, Objects

SAMPLED = 1000
"""Packs that are listed of a night: one request."""
READ = 32
"""Packs that are read at a time: two small requests each. What is read is remembered."""
THREADS = 8
"""Requests at once: they mostly wait for the store."""
REMEMBERED, KEPT = 20_000, 8
"""Packs whose counts are remembered, and readings."""
_DIGITS = 8  # of the digest in a name, to know how far a listing came


class NightCount(NamedTuple):
    """How many alerts a night has, by survey.

    Attributes
    ----------
    exact
        Whether every pack was read; otherwise the numbers are extrapolated from the packs that
        were, by bytes. An alert that was stored twice may count twice.
    bytes
        Of the packs.
    known
        Whether any pack could be read; otherwise the numbers are not known.
    """

    night: int
    alerts: dict[str, int]
    exact: bool
    bytes: int
    known: bool = True

    @property
    def about(self) -> str:
        """What a page writes before the numbers."""
        return "" if self.exact else "≈ "


class NightCounts:
    """Counts the alerts of nights. Use it in one thread."""

    def __init__(self, objects: Objects, listed: NightPacks, packs: PackAlerts) -> None:
        self._objects, self._listed, self._packs = objects, listed, packs
        # By key and etag: a pack that was repaired is read again.
        self._known, self._damaged = Cache(REMEMBERED), Cache(REMEMBERED)
        self._counts = TtlCache(self._read, MAX_AGE, KEPT)

    def of(self, nights: Sequence[int]) -> list[NightCount]:
        """The counts of these nights: one listing each, and at most `READ` packs read.

        Notes the packs that are damaged. Raises `StoreDown`.
        """
        return self._counts(*nights)

    def _read(self, *nights: int) -> list[NightCount]:
        with ThreadPoolExecutor(THREADS, "nights") as pool:
            packs = dict(
                zip(nights, pool.map(partial(self._listed.of, most=SAMPLED), nights), strict=True)
            )
            # A pack of each night first, so that every night has a number.
            listed = [pack for some in packs.values() for pack in some[:1]]
            listed += [pack for some in packs.values() for pack in some[1:]]
            unread = [pack for pack in listed if not self._known.holds(_name(pack))]
            # Packs that were damaged come last: they must not keep the others from being read.
            unread.sort(key=lambda pack: self._damaged.holds(_name(pack)))
            for pack, read in zip(
                unread[:READ], pool.map(self._surveys, unread[:READ]), strict=True
            ):
                if isinstance(read, Damaged):
                    note_damage(pack, read)
                    self._damaged.put(_name(pack), True, 1)
                elif read is not None:
                    self._known.put(_name(pack), read, 1)
        false = self._false(listed)
        sound = {night: [pack for pack in packs[night] if pack not in false] for night in nights}
        return [self._count(night, packs[night], sound[night]) for night in nights]

    def _false(self, packs: Sequence[ObjectInfo]) -> set[ObjectInfo]:
        """Packs that are copies of others: a name is a digest, so no two have the same bytes."""
        same = Counter(pack.etag for pack in packs)
        return {pack for pack in packs if same[pack.etag] > 1 and not self._packs.prove(pack)}

    def _surveys(self, pack: ObjectInfo) -> Counter[str] | Damaged | None:
        """The number of alerts by survey; None if the pack was deleted."""
        try:
            return Counter(alert.survey for alert in alerts_of(self._objects, pack))
        except NotFound:
            return None
        except Damaged as error:
            return error

    def _count(
        self, night: int, packs: Sequence[ObjectInfo], sound: Sequence[ObjectInfo]
    ) -> NightCount:
        known = [pack for pack in sound if self._known.holds(_name(pack))]
        alerts = sum((self._known.get(_name(pack)) for pack in known), Counter[str]())
        listed = sum(pack.size for pack in packs)
        size = round(listed / _part(packs))
        exact = len(known) == len(packs) < SAMPLED
        if not exact:
            factor = size / max(1, sum(pack.size for pack in known))
            alerts = Counter({survey: round(n * factor) for survey, n in alerts.items()})
        return NightCount(night, dict(sorted(alerts.items())), exact, size, bool(known))


def _name(pack: ObjectInfo) -> tuple[str, str]:
    return pack.key, pack.etag


def _part(packs: Sequence[ObjectInfo]) -> float:
    """The part of a night's packs that these are: digests are evenly distributed."""
    if len(packs) < SAMPLED:
        return 1.0
    part: float = (int(digest_of(packs[-1])[:_DIGITS], 16) + 1) / 16**_DIGITS
    return part
