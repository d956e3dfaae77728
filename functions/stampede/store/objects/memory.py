"""Objects in this process's memory, for tests and simulations."""

import threading
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from hashlib import md5

from stampede.errors import NotFound
from stampede.store.objects.object_store import Folder, ObjectInfo, after_folder


def _now() -> datetime:
    return datetime.now(UTC)


class MemoryObjects:
    """`Objects` in a dictionary.

    Parameters
    ----------
    clock
        Gives each object's `modified`; a simulation passes its own.
    """

    def __init__(self, clock: Callable[[], datetime] = _now) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._keys: list[str] = []
        self._objects: dict[str, tuple[bytes, ObjectInfo]] = {}

    def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        """See `Objects.put`."""
        self._put(key, bytes(data), _md5(data).hex())

    def put_stream(self, key: str, pieces: Iterable[bytes]) -> None:
        """See `Objects.put_stream`; the etag is the one S3 gives an upload in parts."""
        parts = list(pieces)
        etag = f"{_md5(b''.join(map(_md5, parts))).hex()}-{len(parts)}"
        self._put(key, b"".join(parts), etag)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Objects.get`."""
        data, _ = self._entry(key)
        return data[start:] if length is None else data[start : start + length]

    def head(self, key: str) -> ObjectInfo:
        """See `Objects.head`."""
        return self._entry(key)[1]

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """See `Objects.list`; a snapshot, taken when the first key is requested."""
        with self._lock:
            first = bisect_left(self._keys, max(prefix, after))
            found = []
            for key in self._keys[first:]:
                if not key.startswith(prefix):
                    break
                if key > after:
                    found.append(self._objects[key][1])
        yield from found

    def list_folder(self, folder: str) -> Folder:
        """See `Objects.list_folder`."""
        folders, objects = list[str](), list[ObjectInfo]()
        with self._lock:
            at = bisect_left(self._keys, folder)
            while at < len(self._keys) and self._keys[at].startswith(folder):
                key = self._keys[at]
                name, slash, _ = key.removeprefix(folder).partition("/")
                if slash:
                    folders.append(f"{folder}{name}/")
                    at = bisect_left(self._keys, after_folder(folders[-1]))
                else:
                    objects.append(self._objects[key][1])
                    at += 1
        return Folder(folders, objects)

    def delete(self, key: str) -> None:
        """See `Objects.delete`."""
        with self._lock:
            if self._objects.pop(key, None):
                del self._keys[bisect_left(self._keys, key)]

    def forget_uploads(self, before: datetime) -> int:
        """See `Objects.forget_uploads`; there are none."""
        return 0

    def now(self) -> datetime:
        """See `Objects.now`."""
        return self._clock()

    def _put(self, key: str, data: bytes, etag: str) -> None:
        with self._lock:
            if key not in self._objects:
                insort(self._keys, key)
            self._objects[key] = data, ObjectInfo(key, len(data), etag, self._clock())

    def _entry(self, key: str) -> tuple[bytes, ObjectInfo]:
        try:
            return self._objects[key]
        except KeyError:
            raise NotFound(f"the store has no object {key}") from None


def _md5(data: bytes | memoryview) -> bytes:
    return md5(data, usedforsecurity=False).digest()
