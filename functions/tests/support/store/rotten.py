"""A store that gives other bytes for some of its objects, as a bad disk or a bad copy does."""

import random
from collections.abc import Collection, Iterator
from enum import StrEnum

from stampede.errors import NotFound
from stampede.store.objects.object_store import Folder, ObjectInfo, Objects
from tests.support.store.watched_objects import Forwarding


class Way(StrEnum):
    """How the bytes of an object change."""

    FLIP = "flip"
    FLIP_FOOTER = "flip in the footer"
    CUT = "cut"
    EMPTY = "empty"
    SWAP = "swap"


class Rotten(Forwarding):
    """The objects of `inner`, but for those in `changed`.

    Attributes
    ----------
    changed
        Other bytes, by key.
    same_etag
        Whether listings give the size and etag of what was written, as after a fault of a disk; or
        those of the other bytes, as after a write.
    """

    def __init__(self, inner: Objects) -> None:
        super().__init__(inner)
        self.changed: dict[str, bytes] = {}
        self.same_etag = True

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        data = self.changed.get(key)
        if data is None:
            return super().get(key, start, length)
        return data[start:] if length is None else data[start : start + length]

    def head(self, key: str) -> ObjectInfo:
        return self._told(super().head(key))

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        return map(self._told, super().list(prefix, after))

    def list_folder(self, folder: str) -> Folder:
        found = super().list_folder(folder)
        return Folder(found.folders, [*map(self._told, found.objects)])

    def _told(self, info: ObjectInfo) -> ObjectInfo:
        data = self.changed.get(info.key)
        if data is None or self.same_etag:
            return info
        return info._replace(size=len(data), etag=f"another-{len(data)}-{hash(data):x}")


class Without(Forwarding):
    """The objects of `inner` but for some, as after a DELETE."""

    def __init__(self, inner: Objects, gone: Collection[str]) -> None:
        super().__init__(inner)
        self._gone = gone

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if key in self._gone:
            raise NotFound(key)
        return super().get(key, start, length)

    def head(self, key: str) -> ObjectInfo:
        if key in self._gone:
            raise NotFound(key)
        return super().head(key)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        return (info for info in super().list(prefix, after) if info.key not in self._gone)

    def list_folder(self, folder: str) -> Folder:
        found = super().list_folder(folder)
        return Folder(found.folders, [info for info in found.objects if info.key not in self._gone])


def change(objects: Objects, key: str, way: Way, dice: random.Random) -> dict[str, bytes]:
    """Other bytes for an object; a swap is with another object in the same folder, if any."""
    data = objects.get(key)
    if way is Way.EMPTY:
        return {key: b""}
    if way is Way.CUT:
        return {key: data[: dice.randrange(len(data))]}
    if way is Way.SWAP:
        folder = key.rpartition("/")[0]
        others = [info.key for info in objects.list("") if info.key != key]
        near = [other for other in others if other.rpartition("/")[0] == folder]
        other = dice.choice(near or others)
        return {key: objects.get(other), other: data}
    footer = int.from_bytes(data[-8:-4], "little") + 8
    first = max(0, len(data) - footer) if way is Way.FLIP_FOOTER else 0
    flipped = bytearray(data)
    flipped[dice.randrange(first, len(data))] ^= 1 << dice.randrange(8)
    return {key: bytes(flipped)}
