"""How far a scrub of a site is: a saved state (`saved_state`) that each pass writes.

It lies at the first site under ``scrub/<site>/``, for either site.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

from stampede.store.integrity import saved_state
from stampede.store.objects.object_store import Objects

PREFIX = "scrub/"
MOST_LEFT = 1000
"""Most faults that are kept from pass to pass; the next round finds the others again."""


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
    unseen
        Those of them, as far as they were left when the round began, to which this round has found
        no row that points. A pack among these that is gone is needed by no reader.
    """

    began: datetime
    complete: datetime
    after: str = ""
    done: bool = False
    left: tuple[tuple[str, str], ...] = ()
    unseen: tuple[str, ...] = ()
    read: int = 0
    size: int = 0

    def due(self, now: datetime, interval: timedelta) -> bool:
        """Whether a new round is to begin: `interval` after the last one began."""
        return self.done and not self.began <= now < self.began + interval

    def expected(self, now: datetime) -> timedelta | None:
        """How long this round takes in all at its pace so far; None if that is not known.

        That is if it has ended or only just begun, or if no round has ended before.
        """
        if self.done or not self.size or not self.read:
            return None
        return (now - self.began) * max(1.0, self.size / self.read)


def load(objects: Objects, site: str) -> ScrubState | None:
    """The latest state of the scrub of a site; None if there is none that is whole.

    Raises `StoreDown`.
    """
    return saved_state.load(objects, f"{PREFIX}{site}/", ScrubState)


def save(objects: Objects, site: str, state: ScrubState) -> None:
    """Write a state, then delete the earlier ones. Raises `StoreDown`."""
    saved_state.save(objects, f"{PREFIX}{site}/", state)
