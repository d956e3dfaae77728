"""Byte ranges as the files that pyarrow reads Parquet from."""

from stampede.errors import StoreDown
from stampede.store.objects.object_store import ObjectInfo, Objects


class ChangedObject(StoreDown):
    """An object is no longer what was listed: list again."""


class RangeFile:
    """A read-only file of `size` bytes; a subclass says where `read` gets them."""

    closed = False

    def __init__(self, size: int) -> None:
        self._size, self._position = size, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        """As `io.IOBase.seek`."""
        self._position = offset + (0, self._position, self._size)[whence]
        return self._position

    def tell(self) -> int:
        """As `io.IOBase.tell`."""
        return self._position

    def read(self, length: int) -> bytes:
        """As `io.RawIOBase.read`."""
        raise NotImplementedError

    def readable(self) -> bool:
        """As `io.IOBase.readable`."""
        return True

    def seekable(self) -> bool:
        """As `io.IOBase.seekable`."""
        return True

    def writable(self) -> bool:
        """As `io.IOBase.writable`."""
        return False

    def close(self) -> None:
        """There is nothing to close."""


class MemoryRange(RangeFile):
    """A file that has only `data` in memory, from byte `start` on: for example a row group.

    A sparse mapping of the whole file, which needs no Python, measured slower: page faults.
    """

    def __init__(self, data: bytes, start: int, size: int) -> None:
        super().__init__(size)
        self._data, self._start = memoryview(data), start

    def read(self, length: int) -> bytes:
        """As `io.RawIOBase.read`. Raises ValueError outside the range."""
        begin = self._position - self._start
        if begin < 0 or begin + length > len(self._data):
            raise ValueError("a read outside the row group")
        self._position += length
        return bytes(self._data[begin : begin + length])


class ObjectFile(RangeFile):
    """A whole object of a store; each read is one request."""

    def __init__(self, objects: Objects, info: ObjectInfo) -> None:
        super().__init__(info.size)
        self._objects, self._key = objects, info.key

    def read(self, length: int) -> bytes:
        """As `io.RawIOBase.read`. Raises `NotFound`, `StoreDown`."""
        data = self._objects.get(self._key, self._position, length)
        if len(data) != min(length, self._size - self._position):
            raise ChangedObject(f"{self._key} is shorter than it was listed")
        self._position += length
        return data
