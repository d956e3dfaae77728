"""Objects as files of a directory: a store for one machine, easy to inspect by hand."""

import itertools
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryFile

from stampede.errors import NotFound, StoreDown
from stampede.store.objects.object_store import Folder, ObjectInfo

# No segment of a key starts with a dot, so unfinished files are never listed.
_UNDER_WAY = ".under-way"
_ABSENT = (FileNotFoundError, IsADirectoryError, NotADirectoryError)


class DirectoryObjects:
    """`Objects` as files: a key is a path below `root`.

    `put` writes a temporary file, syncs it, renames it and syncs its directory, so an object is
    whole or absent even after a power cut. An etag is the file's size and the nanosecond of its
    last change: it distinguishes two writes, not two contents. Unlike in S3, one key cannot be the
    directory of another (``a`` and ``a/b``).
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._names = (f"{os.getpid()}-{threading.get_native_id()}-{n}" for n in itertools.count())
        self._lock = threading.Lock()

    def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        """See `Objects.put`."""
        self.put_stream(key, (data,))

    def put_stream(self, key: str, pieces: Iterable[bytes | memoryview]) -> None:
        """See `Objects.put_stream`."""
        path = self._path(key)
        with self._lock:
            temporary = self.root / _UNDER_WAY / next(self._names)
        with _failing(key):
            temporary.parent.mkdir(parents=True, exist_ok=True)
            self._make_directory(path.parent)
            try:
                with open(temporary, "xb") as file:
                    for piece in pieces:
                        file.write(piece)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, path)
            finally:
                temporary.unlink(missing_ok=True)
            _sync(path.parent)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Objects.get`."""
        with _absent(key), open(self._path(key), "rb") as file:
            file.seek(start)
            return file.read(-1 if length is None else length)

    def head(self, key: str) -> ObjectInfo:
        """See `Objects.head`."""
        path = self._path(key)
        with _absent(key):
            if path.is_dir():
                raise IsADirectoryError
            return _info(key, path.stat())

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """See `Objects.list`."""
        with _failing(prefix):
            yield from self._walk("", prefix, after)

    def list_folder(self, folder: str) -> Folder:
        """See `Objects.list_folder`. A directory whose last file was deleted is no folder."""
        folders, objects = list[str](), list[ObjectInfo]()
        with _failing(folder):
            for name, entry in _entries(self.root, folder):
                if not name.endswith("/"):
                    with suppress(FileNotFoundError):  # deleted since the directory was read
                        objects.append(_info(name, entry.stat()))
                elif next(self._walk(name, name, ""), None):
                    folders.append(name)
        return Folder(folders, objects)

    def delete(self, key: str) -> None:
        """See `Objects.delete`."""
        with _failing(key), suppress(*_ABSENT):
            self._path(key).unlink()

    def forget_uploads(self, before: datetime) -> int:
        """See `Objects.forget_uploads`."""
        forgotten = 0
        with _failing(_UNDER_WAY):
            for path in (self.root / _UNDER_WAY).glob("*"):
                with suppress(FileNotFoundError):
                    if datetime.fromtimestamp(path.stat().st_mtime, UTC) < before:
                        path.unlink()
                        forgotten += 1
        return forgotten

    def now(self) -> datetime:
        """See `Objects.now`; the time that the file system gives a new file."""
        with _failing("its clock"):
            self.root.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=self.root) as file:
                return datetime.fromtimestamp(os.fstat(file.fileno()).st_mtime, UTC)

    def _walk(self, below: str, prefix: str, after: str) -> Iterator[ObjectInfo]:
        for name, entry in _entries(self.root, below):
            if name.endswith("/"):
                if (name.startswith(prefix) or prefix.startswith(name)) and (
                    name > after or after.startswith(name)
                ):
                    yield from self._walk(name, prefix, after)
            elif name.startswith(prefix) and name > after:
                try:
                    yield _info(name, entry.stat())
                except FileNotFoundError:
                    continue  # deleted since the directory was read

    def _path(self, key: str) -> Path:
        if not key or any(not part or part.startswith(".") for part in key.split("/")):
            raise ValueError(f"not a key: {key!r}")
        return self.root / key

    def _make_directory(self, directory: Path) -> None:
        if not directory.is_dir():
            if directory != self.root:
                self._make_directory(directory.parent)
            directory.mkdir(exist_ok=True, parents=True)
            _sync(directory.parent)


def _entries(root: Path, below: str) -> list[tuple[str, os.DirEntry[str]]]:
    """The directories and files in a directory below `root`, in the order of their keys."""
    try:
        with os.scandir(root / below) as entries:
            # A directory sorts as its keys do: with the slash after its name.
            return sorted(
                (
                    (below + entry.name + "/" * entry.is_dir(), entry)
                    for entry in entries
                    if not entry.name.startswith(".")
                ),
                key=lambda named: named[0],
            )
    except FileNotFoundError:
        return []


def _info(key: str, stat: os.stat_result) -> ObjectInfo:
    modified = datetime.fromtimestamp(stat.st_mtime, UTC)
    return ObjectInfo(key, stat.st_size, f"{stat.st_size:x}-{stat.st_mtime_ns:x}", modified)


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _failing(key: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreDown(f"the store's directory failed at {key}: {error}") from error


@contextmanager
def _absent(key: str) -> Iterator[None]:
    with _failing(key):
        try:
            yield
        except _ABSENT:
            raise NotFound(f"the store has no object {key}") from None
