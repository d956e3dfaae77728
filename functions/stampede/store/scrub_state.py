"""How far a scrub of a site is: an object that each pass writes, and the next one reads.

It lies at the first site under ``scrub/<site>/<number>-<digest>.json``, for either site, and is not
copied to the second. The number grows by one with each pass; the digest is that of its bytes. Like
every object it is written once, so passes that overlap harm nothing: the last name counts.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from stampede.errors import NotFound
from stampede.store.objects import ObjectInfo, Objects
from stampede.store.runs import digest

PREFIX = "scrub/"
MOST_LEFT = 1000
"""Most faults that are kept from pass to pass; the next round finds the others again."""

_KEY = re.compile(r"scrub/[a-z]+/(\d{10})-([0-9a-f]{32})\.json")


@dataclass(frozen=True)
class ScrubState:
    """A round over one site.

    Attributes
    ----------
    began
        When the round began, by the store's clock.
    complete
        When a whole round last ended; before the first end, when the first began.
    after
        Key of the last object that was read; empty at the beginning.
    done
        Whether the round has ended. The next begins later.
    left
        Objects that were found damaged or lost and are so still: key and reason.
    """

    began: datetime
    complete: datetime
    after: str = ""
    done: bool = False
    left: tuple[tuple[str, str], ...] = ()

    def to_json(self) -> bytes:
        """The content of the object."""
        return json.dumps(
            {
                "began": self.began.isoformat(),
                "complete": self.complete.isoformat(),
                "after": self.after,
                "done": self.done,
                "left": self.left[:MOST_LEFT],
            },
            indent=1,
        ).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "ScrubState":
        """What `to_json` wrote. Raises `ValueError`, `KeyError`, `TypeError`."""
        fields = json.loads(data)
        return cls(
            datetime.fromisoformat(fields["began"]),
            datetime.fromisoformat(fields["complete"]),
            str(fields["after"]),
            bool(fields["done"]),
            tuple((str(key), str(why)) for key, why in fields["left"]),
        )

    def due(self, now: datetime, interval: timedelta) -> bool:
        """Whether a new round is to begin: `interval` after the last one began."""
        return self.done and not self.began <= now < self.began + interval


def digest_of(key: str) -> str | None:
    """The digest in the key of a state; None for any other key."""
    found = _KEY.fullmatch(key)
    return found[2] if found else None


def load(objects: Objects, site: str) -> ScrubState | None:
    """The latest state of the scrub of a site; None if there is none that is whole.

    Raises `StoreDown`.
    """
    for info in reversed(list(_states(objects, site))):
        try:
            data = objects.get(info.key)
            if digest_of(info.key) == digest(data):
                return ScrubState.from_json(data)
        except (NotFound, ValueError, KeyError, TypeError):
            continue
    return None


def save(objects: Objects, site: str, state: ScrubState) -> None:
    """Write a state, then delete the earlier ones. Raises `StoreDown`."""
    earlier = list(_states(objects, site))
    last = _KEY.fullmatch(earlier[-1].key) if earlier else None
    data = state.to_json()
    number = int(last[1]) + 1 if last else 0
    objects.put(f"{PREFIX}{site}/{number:010}-{digest(data)}.json", data)
    for info in earlier:
        objects.delete(info.key)


def _states(objects: Objects, site: str) -> Iterator[ObjectInfo]:
    return (info for info in objects.list(f"{PREFIX}{site}/") if digest_of(info.key))
