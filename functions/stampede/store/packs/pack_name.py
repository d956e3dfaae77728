"""The names of packs: what a key says of the alerts that its pack holds.

``<kind>/<night>/[merged<level>-<first>-<slice>-]<digest>[-programid1.2].parquet``
"""

import re
from collections.abc import Iterable
from typing import NamedTuple, Self

from stampede.store.programmes.keys import SUFFIX, programids_in, suffix
from stampede.store.runs.run_name import name_of

WHOLE = "all"
"""How a name has the slice of all objects."""
# A night before MJD 0 comes from an alert without a real date, stored before dates were bounded.
_KEY = re.compile(
    r"(?P<kind>packs|thumbnails|packets)/(?P<night>-?\d+)/"
    rf"(?:merged(?P<level>\d+)-(?P<first>-?\d+)-(?P<slice>{WHOLE}|[01]+)-)?"
    rf"(?P<digest>[0-9a-f]{{32}}){SUFFIX}\.parquet"
)
_LEVEL = re.compile(r"merged(\d+)-")


class Merged(NamedTuple):
    """Of which packs a pack was merged.

    Attributes
    ----------
    level
        One more than the greatest of theirs; a pack that a function wrote has 0.
    first
        The earliest of their nights; the latest is in the key.
    slice
        It holds the objects whose hash begins with these bits, ``0`` and ``1``; of images those
        of all objects.
    """

    level: int
    first: int
    slice: str

    def __str__(self) -> str:
        return f"merged{self.level}-{self.first}-{self.slice or WHOLE}-"


class PackName(NamedTuple):
    """The parts of the key of a pack.

    Attributes
    ----------
    night
        Integer MJD of the latest alert.
    programids
        The observing programmes of the alerts; none if their survey has none.
    """

    kind: str
    night: int
    digest: str
    programids: frozenset[int] = frozenset()
    merged: Merged | None = None

    @classmethod
    def make(
        cls,
        kind: str,
        night: int,
        sha256: str,
        programids: Iterable[int] = (),
        merged: Merged | None = None,
    ) -> Self:
        """The name of a pack whose bytes have this digest."""
        return cls(kind, night, name_of(sha256), frozenset(programids), merged)

    @classmethod
    def parse(cls, key: str) -> Self | None:
        """The name in a key; None if it is not the key of a pack."""
        found = _KEY.fullmatch(key)
        if not found:
            return None
        merged = None
        if found["level"]:
            bits = "" if found["slice"] == WHOLE else found["slice"]
            merged = Merged(int(found["level"]), int(found["first"]), bits)
        programids = programids_in(found["programids"])
        return cls(found["kind"], int(found["night"]), found["digest"], programids, merged)

    @property
    def key(self) -> str:
        """The key of the pack."""
        end = f"{self.digest}{suffix(self.programids)}.parquet"
        return f"{self.kind}/{self.night}/{self.merged or ''}{end}"

    @property
    def level(self) -> int:
        """How often the pack was merged."""
        return self.merged.level if self.merged else 0

    @property
    def first(self) -> int:
        """The earliest night of which it may hold alerts."""
        return self.merged.first if self.merged else self.night

    @property
    def slice(self) -> str:
        """The bits that the hashes of its objects begin with."""
        return self.merged.slice if self.merged else ""


def level_of(key: str) -> int:
    """How often a pack, or a file of raw alerts, was merged, by its key."""
    found = _LEVEL.match(key.rpartition("/")[2])
    return int(found[1]) if found else 0


def night_of(key: str) -> int | None:
    """The night (integer MJD) of a pack of any kind by its key; None for any other key."""
    found = _KEY.fullmatch(key)
    return int(found["night"]) if found else None
