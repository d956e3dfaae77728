"""How far a function is that goes on at each event of its timer, perhaps in a new process.

A state is an object ``<folder>/<number>-<digest>.json`` that each pass writes and the next one
reads: a dataclass as JSON. The number grows by one with each pass; the digest is that of its bytes.
Like every object it is written once, so passes that overlap harm nothing: the last name counts.
States describe their own site and are not copied to the other.
"""

import re
from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import TypeAdapter

from stampede.errors import NotFound
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.runs.run_name import digest

T = TypeVar("T")

TRIES = 3
"""Listings of which another pass may replace every state."""
_FOLDER = r"(?:(?:scrub|reconcile|merges)/[a-z-]+|proving/(?:\d+|all))/"
_KEY = re.compile(_FOLDER + r"(\d{10})-([0-9a-f]{32})\.json")


def digest_of(key: str) -> str | None:
    """The digest in the key of a state; None for any other key."""
    found = _KEY.fullmatch(key)
    return found[2] if found else None


def load(objects: Objects, folder: str, kind: type[T]) -> T | None:
    """The latest state in a folder, of this dataclass; None if there is none that is whole.

    Raises `StoreDown`.
    """
    for _ in range(TRIES):
        replaced = False
        for info in reversed(list(_states(objects, folder))):
            try:
                data = objects.get(info.key)
                if digest_of(info.key) == digest(data):
                    return TypeAdapter(kind).validate_json(data)
            except NotFound:
                replaced = True  # by a pass that overlaps this one: its state is there already
            except ValueError:
                continue
        if not replaced:
            break
    return None


def save(objects: Objects, folder: str, state: Any) -> None:
    """Write a state, a dataclass, then delete the earlier ones. Raises `StoreDown`."""
    data = TypeAdapter(type(state)).dump_json(state, indent=1)
    earlier = list(_states(objects, folder))
    last = _KEY.fullmatch(earlier[-1].key) if earlier else None
    number = int(last[1]) + 1 if last else 0
    objects.put(f"{folder}{number:010}-{digest(data)}.json", data)
    for info in earlier:
        objects.delete(info.key)


def _states(objects: Objects, folder: str) -> Iterator[ObjectInfo]:
    return (info for info in objects.list(folder) if digest_of(info.key))
