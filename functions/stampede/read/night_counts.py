"""How many alerts each night of the store has, without reading all of it.

The name of a pack is a digest, so the packs that a listing begins with are a fair sample of all.
"""

from collections import Counter, OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

from stampede.read.nights import MAX_AGE, digest_of, folder_of_night
from stampede.read.pack_alerts import alerts_of
from stampede.read.readings import Readings
from stampede.store.objects import ObjectInfo, Objects

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
    """

    night: int
    alerts: dict[str, int]
    exact: bool
    bytes: int

    @property
    def about(self) -> str:
        """What a page writes before the numbers."""
        return "" if self.exact else "≈ "


class NightCounts:
    """Counts the alerts of nights. Use it in one thread."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._known: OrderedDict[str, Counter[str]] = OrderedDict()
        self._counts = Readings(self._read, MAX_AGE, KEPT)

    def of(self, nights: Sequence[int]) -> list[NightCount]:
        """The counts of these nights: one listing each, and at most `READ` packs read.

        Raises `StoreDown`.
        """
        return self._counts(*nights)

    def _read(self, *nights: int) -> list[NightCount]:
        with ThreadPoolExecutor(THREADS, "nights") as pool:
            packs = dict(zip(nights, pool.map(self._sample, nights), strict=True))
            # A pack of each night first, so that every night has a number.
            listed = [pack for some in packs.values() for pack in some[:1]]
            listed += [pack for some in packs.values() for pack in some[1:]]
            unread = [pack for pack in listed if pack.key not in self._known][:READ]
            for pack, counts in zip(unread, pool.map(self._surveys, unread), strict=True):
                self._known[pack.key] = counts
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return [self._count(night, packs[night]) for night in nights]

    def _sample(self, night: int) -> list[ObjectInfo]:
        return [*islice(self._objects.list(folder_of_night(night)), SAMPLED)]

    def _surveys(self, pack: ObjectInfo) -> Counter[str]:
        return Counter(alert.survey for alert in alerts_of(self._objects, pack))

    def _count(self, night: int, packs: Sequence[ObjectInfo]) -> NightCount:
        known = [pack for pack in packs if pack.key in self._known]
        alerts = sum((self._known[pack.key] for pack in known), Counter[str]())
        listed = sum(pack.size for pack in packs)
        size = round(listed / _part(packs))
        exact = len(known) == len(packs) < SAMPLED
        if not exact:
            factor = size / max(1, sum(pack.size for pack in known))
            alerts = Counter({survey: round(n * factor) for survey, n in alerts.items()})
        return NightCount(night, dict(sorted(alerts.items())), exact, size)


def _part(packs: Sequence[ObjectInfo]) -> float:
    """The part of a night's packs that these are: digests are evenly distributed."""
    if len(packs) < SAMPLED:
        return 1.0
    return (int(digest_of(packs[-1])[:_DIGITS], 16) + 1) / 16**_DIGITS
