"""A store that counts its requests: the cost of an operation, independent of the machine."""

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from stampede.store.objects.object_store import Folder, ObjectInfo, Objects


class CountingStore:
    """Wraps `Objects` and counts requests and bytes by operation since the last `clear`.

    A listing counts one request per thousand keys, as in S3. With several threads a count may
    sometimes miss a request.
    """

    def __init__(self, inner: Objects) -> None:
        self.inner = inner
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()

    def clear(self) -> None:
        """Set all counts to zero."""
        self.requests.clear()
        self.bytes.clear()

    def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        """See `Objects.put`."""
        self._count("put", len(data))
        self.inner.put(key, data, sha256)

    def put_stream(self, key: str, pieces: Iterable[bytes]) -> None:
        """See `Objects.put_stream`."""

        def counted() -> Iterator[bytes]:
            for piece in pieces:
                self._count("put", len(piece))
                yield piece

        self.inner.put_stream(key, counted())

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Objects.get`."""
        data = self.inner.get(key, start, length)
        self._count("get", len(data))
        return data

    def head(self, key: str) -> ObjectInfo:
        """See `Objects.head`."""
        self._count("head")
        return self.inner.head(key)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """See `Objects.list`."""
        for number, info in enumerate(self.inner.list(prefix, after)):
            if number % 1000 == 0:
                self._count("list")
            yield info

    def list_folder(self, folder: str) -> Folder:
        """See `Objects.list_folder`."""
        found = self.inner.list_folder(folder)
        for _ in range(0, len(found.folders) + len(found.objects), 1000):
            self._count("list")
        return found

    def delete(self, key: str) -> None:
        """See `Objects.delete`."""
        self._count("delete")
        self.inner.delete(key)

    def forget_uploads(self, before: datetime) -> int:
        """See `Objects.forget_uploads`."""
        return self.inner.forget_uploads(before)

    def now(self) -> datetime:
        """See `Objects.now`."""
        return self.inner.now()

    def _count(self, operation: str, size: int = 0) -> None:
        self.requests[operation] += 1
        self.bytes[operation] += size
