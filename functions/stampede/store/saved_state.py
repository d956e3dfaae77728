"""How far a function is that goes on at each event of its timer, perhaps in a new process.

A state is an object ``<folder>/<number>-<digest>.json`` that each pass writes and the next one
reads. The number grows by one with each pass; the digest is that of its bytes. Like every object
it is written once, so passes that overlap harm nothing: the last name counts. States describe
their own site and are not copied to the other.
"""

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from stampede.errors import NotFound
from stampede.store.objects import ObjectInfo, Objects
from stampede.store.runs import digest

T = TypeVar("T")

_KEY = re.compile(r"(?:scrub|reconcile)/[a-z-]+/(\d{10})-([0-9a-f]{32})\.json")


def digest_of(key: str) -> str | None:
    """The digest in the key of a state; None for any other key."""
    found = _KEY.fullmatch(key)
    return found[2] if found else None


def load(objects: Objects, folder: str, parse: Callable[[bytes], T]) -> T | None:
    """The latest state in a folder; None if there is none that is whole.

    `parse` may raise `ValueError`, `KeyError` or `TypeError`. Raises `StoreDown`.
    """
    for info in reversed(list(_states(objects, folder))):
        try:
            data = objects.get(info.key)
            if digest_of(info.key) == digest(data):
                return parse(data)
        except (NotFound, ValueError, KeyError, TypeError):
            continue
    return None


def save(objects: Objects, folder: str, data: bytes) -> None:
    """Write a state, then delete the earlier ones. Raises `StoreDown`."""
    earlier = list(_states(objects, folder))
    last = _KEY.fullmatch(earlier[-1].key) if earlier else None
    number = int(last[1]) + 1 if last else 0
    objects.put(f"{folder}{number:010}-{digest(data)}.json", data)
    for info in earlier:
        objects.delete(info.key)


def _states(objects: Objects, folder: str) -> Iterator[ObjectInfo]:
    return (info for info in objects.list(folder) if digest_of(info.key))
