"""When `compact` last found nothing to merge in the packs: a saved state (`saved_state`).

A pod that has started for one pass remembers nothing, and must not list nights at each of them.
"""

from dataclasses import dataclass
from datetime import datetime

from stampede.store.integrity import saved_state
from stampede.store.objects.object_store import Objects

PREFIX = "merges/"
_FOLDER = f"{PREFIX}all/"


@dataclass(frozen=True)
class MergeState:
    """Nothing was due `at` that time, by the store's clock."""

    at: datetime


def load(objects: Objects) -> MergeState | None:
    """The latest state; None if there is none that is whole. Raises `StoreDown`."""
    return saved_state.load(objects, _FOLDER, MergeState)


def save(objects: Objects, state: MergeState) -> None:
    """Write a state, then delete the earlier ones. Raises `StoreDown`."""
    saved_state.save(objects, _FOLDER, state)
