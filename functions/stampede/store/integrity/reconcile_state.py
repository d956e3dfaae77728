"""How far `reconcile` is with its round over the nights: a saved state (`saved_state`)."""

from dataclasses import dataclass
from datetime import datetime

from stampede.store.integrity import saved_state
from stampede.store.objects.object_store import Objects

PREFIX = "reconcile/"


@dataclass(frozen=True)
class RoundState:
    """A round over the folders of nights, in key order.

    Attributes
    ----------
    began
        When the round began, by the store's clock.
    complete
        When the last whole round began: what was in the store then was looked at since. Before the
        first end of a round, when the first began.
    after
        The last folder that was looked at; empty before the first.
    before
        When the whole round before the last one began, or `complete` if there was none.
    """

    began: datetime
    complete: datetime
    after: str = ""
    before: datetime | None = None


def load(objects: Objects, steps: str) -> RoundState | None:
    """The latest state of the rounds of these steps; None if there is none that is whole.

    Raises `StoreDown`.
    """
    return saved_state.load(objects, f"{PREFIX}{steps}/", RoundState)


def save(objects: Objects, steps: str, state: RoundState) -> None:
    """Write a state, then delete the earlier ones. Raises `StoreDown`."""
    saved_state.save(objects, f"{PREFIX}{steps}/", state)
