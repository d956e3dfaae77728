"""Objects as a test wants to see them: every request counted, interrupted, or made to fail."""

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

from stampede.errors import StoreDown
from stampede.store.objects import ObjectInfo, Objects

WRITES = ("put", "delete")


class Watched:
    """`Objects` around others.

    `calls` holds (operation, key) of every request. `before` is called ahead of each, and may do
    anything to the store: what another process does in that moment. A listing is two keys a page,
    and a request each, so that it is no snapshot. After `crash_at` writes, the last of which has
    still happened if `torn`, every request fails: the process is dead.
    """

    def __init__(
        self,
        inner: Objects,
        before: Callable[[int], None] = lambda number: None,
        crash_at: int | None = None,
        torn: bool = False,
    ) -> None:
        self.inner = inner
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

    def forget_uploads(self, before: datetime) -> int:
        return self.inner.forget_uploads(before)

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
