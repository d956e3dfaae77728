"""The files of another archive: those of a folder, or below a prefix of an S3 bucket."""

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from stampede.errors import SetupError
from stampede.ingest import files as local
from stampede.ingest.records import FileAlert
from stampede.ingest.tables import ENDINGS as TABLE_ENDINGS
from stampede.ingest.tables import TableFile
from stampede.store.objects.address import StoreAddress
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.open import open_store
from stampede.store.parquet.range_file import ObjectFile

SCHEME = "s3://"
_LIMIT = 16 << 20  # bytes of an alert, and of an object that is got whole
_PART = 8 << 20  # bytes of one GET of a larger object
_AT_ONCE, _AHEAD = 16, 256


class Folder(Protocol):
    """Where the files of another archive are."""

    def tables(self) -> list[TableFile]:
        """All files, if one of them ends as tables do; else none."""
        ...

    def alerts(self) -> Iterator[FileAlert]:
        """The alerts in all files of alerts. Raises `SetupError` if there are none."""
        ...


class LocalFolder:
    """A folder or a file of this machine."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def tables(self) -> list[TableFile]:
        """See `Folder.tables`."""
        path = self._path
        found = sorted(each for each in path.rglob("*") if each.is_file()) or [path]
        if not any(each.name.endswith(TABLE_ENDINGS) for each in found):
            return []
        return [TableFile(str(each), partial(each.open, "rb")) for each in found]

    def alerts(self) -> Iterator[FileAlert]:
        """See `Folder.alerts`."""
        return local.read(local.find([self._path]), _LIMIT)


class BucketFolder:
    """What lies below a prefix of an S3 bucket.

    Parameters
    ----------
    url
        ``s3://BUCKET/PREFIX``.
    environment
        The variables of AWS' own programs: AWS_ENDPOINT_URL, AWS_REGION, AWS_ACCESS_KEY_ID and
        AWS_SECRET_ACCESS_KEY. Without keys the bucket is read as a public one.

    Raises `SetupError` if no store can be there.
    """

    def __init__(self, url: str, environment: Mapping[str, str] = os.environ) -> None:
        place = urlsplit(url)
        region = environment.get("AWS_REGION", "us-east-1")
        # Amazon's own, as its documentation of S3's endpoints has it.
        amazon = f"https://s3.{region}.amazonaws.com"
        endpoint = environment.get("AWS_ENDPOINT_URL", amazon).rstrip("/")
        self._bucket, self._prefix = place.netloc, place.path.lstrip("/")
        self._objects: Objects = open_store(
            StoreAddress(
                f"{endpoint}/{self._bucket}",
                environment.get("AWS_ACCESS_KEY_ID", ""),
                environment.get("AWS_SECRET_ACCESS_KEY", ""),
                region,
            )
        )
        self.url = url

    def tables(self) -> list[TableFile]:
        """See `Folder.tables`. Raises `StoreDown`."""
        ends = (each.key for each in self._listed((*TABLE_ENDINGS, *local.ENDINGS)))
        if not next(ends, "").endswith(TABLE_ENDINGS):
            return []
        return [TableFile(self._name(each), partial(self._file, each)) for each in self._listed()]

    def alerts(self) -> Iterator[FileAlert]:
        """See `Folder.alerts`. Raises `StoreDown`."""
        listed, count = self._listed(local.ENDINGS), 0
        with ThreadPoolExecutor(_AT_ONCE, "archive") as pool:
            while some := list(islice(listed, _AHEAD)):
                count += len(some)
                for info, source in zip(some, pool.map(self._source, some), strict=True):
                    yield from local.read_one(self._name(info), source, _LIMIT)
        if not count:
            endings = ", ".join((*TABLE_ENDINGS, *local.ENDINGS))
            raise SetupError(f"nothing in {self.url}: looked for objects that end in {endings}")

    def _listed(self, endings: tuple[str, ...] = ("",)) -> Iterator[ObjectInfo]:
        return (each for each in self._objects.list(self._prefix) if each.key.endswith(endings))

    def _name(self, info: ObjectInfo) -> str:
        return f"{SCHEME}{self._bucket}/{info.key}"

    def _file(self, info: ObjectInfo) -> Any:
        """A table: of Parquet, only what is asked for is read."""
        if info.key.endswith(".parquet"):
            return ObjectFile(self._objects, info)
        return BytesIO(self._objects.get(info.key))

    def _source(self, info: ObjectInfo) -> "BytesIO | _Parts":
        if info.size <= _LIMIT:
            return BytesIO(self._objects.get(info.key))
        return _Parts(self._objects, info)


class _Parts:
    """An object that is too large for memory, read from the front."""

    def __init__(self, objects: Objects, info: ObjectInfo) -> None:
        self._objects, self._info = objects, info
        self._data, self._begin, self._next = b"", 0, 0

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none only at the end."""
        if self._begin == len(self._data) and self._next < self._info.size:
            self._data = self._objects.get(self._info.key, self._next, _PART)
            self._begin, self._next = 0, self._next + len(self._data)
        piece = self._data[self._begin : self._begin + size]
        self._begin += len(piece)
        return piece
