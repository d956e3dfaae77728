"""Wrappers around a store, for tests: they count, interrupt, fail, delay and corrupt requests.

They can be nested: ``Watched(Changed(MemoryObjects(), read=flip_a_bit))``.
"""

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from stampede.errors import StoreDown
from stampede.store.objects.object_store import Folder, ObjectInfo, Objects

WRITES = ("put", "delete")


class Forwarding:
    """`Objects` that pass every call on to `inner`."""

    def __init__(self, inner: Objects) -> None:
        self.inner = inner

    def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        self.inner.put(key, data, sha256)

    def put_stream(self, key: str, pieces: Iterable[bytes]) -> None:
        self.inner.put_stream(key, pieces)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self.inner.get(key, start, length)

    def head(self, key: str) -> ObjectInfo:
        return self.inner.head(key)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, after)

    def list_folder(self, folder: str) -> Folder:
        return self.inner.list_folder(folder)

    def delete(self, key: str) -> None:
        self.inner.delete(key)

    def forget_uploads(self, before: datetime) -> int:
        return self.inner.forget_uploads(before)

    def now(self) -> datetime:
        return self.inner.now()


class BeforeGet(Forwarding):
    """Calls `action(key, start)` before each GET. The action may record, wait or raise."""

    def __init__(self, inner: Objects, action: Callable[[str, int], None]) -> None:
        super().__init__(inner)
        self._action = action

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._action(key, start)
        return super().get(key, start, length)


class Failing(BeforeGet):
    """GETs raise `error(key)` where `when(key, start)` holds."""

    def __init__(
        self,
        inner: Objects,
        error: type[Exception],
        when: Callable[[str, int], bool] = lambda key, start: True,
    ) -> None:
        def fail(key: str, start: int) -> None:
            if when(key, start):
                raise error(key)

        super().__init__(inner, fail)


class Changed(Forwarding):
    """Corrupts or delays: bytes pass through `read` on their way out, through `write` on their way
    in. `after_write` gets the number of bytes of each piece that was stored.
    """

    def __init__(
        self,
        inner: Objects,
        read: Callable[[bytes], bytes] = lambda data: data,
        write: Callable[[bytes], bytes] = lambda data: data,
        after_write: Callable[[int], None] = lambda size: None,
    ) -> None:
        super().__init__(inner)
        self._read, self._write, self._after_write = read, write, after_write

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        return self._read(super().get(key, start, length))

    def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        super().put(key, self._write(bytes(data)))
        self._after_write(len(data))

    def put_stream(self, key: str, pieces: Iterable[bytes]) -> None:
        def changed() -> Iterator[bytes]:
            for piece in pieces:
                yield self._write(piece)
                self._after_write(len(piece))

        super().put_stream(key, changed())


class Omitting(Forwarding):
    """Listings leave out these keys, as a damaged index of a bucket does."""

    def __init__(self, inner: Objects, *keys: str) -> None:
        super().__init__(inner)
        self.omitted = {*keys}

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        for info in self.inner.list(prefix, after):
            if info.key not in self.omitted:
                yield info


class Watched(Forwarding):
    """Counts requests, and interrupts or fails them.

    `calls` holds (operation, key) of every request. `before` gets the number of each request before
    it is made, and may do to the store what another process could do at that time. A listing has
    two keys a page and one request a page, so it is no snapshot. At write `crash_at` the process
    dies: every request fails from then on, but with `torn` that write still happens.
    """

    def __init__(
        self,
        inner: Objects,
        before: Callable[[int], object] = lambda number: None,
        crash_at: int | None = None,
        torn: bool = False,
    ) -> None:
        super().__init__(inner)
        self.calls: list[tuple[str, str]] = []
        self.got = 0  # bytes
        self._before = before
        self._crash_at, self._torn = crash_at, torn
        self._lock = threading.Lock()

    def count(self, operation: str) -> int:
        return sum(call[0] == operation for call in self.calls)

    def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        self._write("put", key, lambda: self.inner.put(key, data, sha256))

    def put_stream(self, key: str, pieces: Iterable[bytes]) -> None:
        """An upload: a request for each part, and one to complete it."""

        def watched() -> Iterator[bytes]:
            for piece in pieces:
                self._request("part", key)
                yield piece
            self._request("complete", key)

        self._write("put", key, lambda: self.inner.put_stream(key, watched()))

    def delete(self, key: str) -> None:
        self._write("delete", key, lambda: self.inner.delete(key))

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._request("get", key)
        data = self.inner.get(key, start, length)
        self.got += len(data)
        return data

    def head(self, key: str) -> ObjectInfo:
        self._request("head", key)
        return self.inner.head(key)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        while True:
            self._request("list", prefix)
            page = list(itertools.islice(self.inner.list(prefix, after), 2))
            yield from page
            if len(page) < 2:
                return
            after = page[-1].key

    def list_folder(self, folder: str) -> Folder:
        found = self.inner.list_folder(folder)
        for _ in range(0, len(found.folders) + len(found.objects) + 1, 2):
            self._request("list", folder)
        return found

    def _request(self, operation: str, key: str) -> None:
        with self._lock:
            number = len(self.calls)
            self.calls.append((operation, key))
        if self._dead():
            raise StoreDown("crashed")
        self._before(number)

    def _write(self, operation: str, key: str, write: Callable[[], None]) -> None:
        self._request(operation, key)
        if self._written() == self._crash_at:
            if self._torn:
                write()
            raise StoreDown("crashed")
        write()

    def _written(self) -> int:
        return sum(operation in WRITES for operation, _ in self.calls)

    def _dead(self) -> bool:
        return self._crash_at is not None and self._written() > self._crash_at
