"""The bucket as files: the rows of its tables, verified. `docs/store.md` describes it."""

import re
import warnings
from collections.abc import Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from hashlib import sha256
from typing import Any, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from stampede_client.errors import BadInput, Incomplete, IncompleteWarning, NotFound, Unavailable
from stampede_client.parquet_files import Unverified, read_whole
from stampede_client.run_reader import Opened, RunReader, together, twice
from stampede_client.runs import (
    Fault,
    Name,
    Remembered,
    View,
    check_checkpoint,
    remembered_in,
    view_of,
)

LISTINGS = 3
"""Times that the runs are listed: `compact` may delete one between listing and reading."""
AT_ONCE = 16
"""Requests at once; they wait for the store."""
SHOWN = 3
"""Objects that a message names."""
_BUCKET = re.compile(r"bucket-([0-9a-f]{32})")
_CHECKPOINT = re.compile(r"[0-9]{10}-[0-9a-f]{32}\.parquet")

Errors: TypeAlias = Literal["raise", "skip"]


class Bucket:
    """A bucket, read without the server.

    Parameters
    ----------
    store
        A directory, or a URL that pyarrow knows, such as
        ``s3://BUCKET?endpoint_override=http://HOST:PORT``. With `filesystem`, the bucket's path.
    filesystem
        For example `pyarrow.fs.S3FileSystem` with keys and endpoint.
    errors
        What to do if rows that may be asked for cannot be read: raise `Incomplete`, or give the
        others and warn, `IncompleteWarning`.
    """

    def __init__(
        self, store: str, filesystem: fs.FileSystem | None = None, errors: Errors = "raise"
    ) -> None:
        if filesystem is None and "://" in store:
            try:
                filesystem, store = fs.FileSystem.from_uri(store)
            except (pa.ArrowException, OSError, ValueError) as error:
                raise BadInput(f"{store!r} is no URL of a bucket: {error}") from None
        self.filesystem = filesystem or fs.LocalFileSystem()
        self.root = store.rstrip("/")
        self._errors = errors

    def rows(
        self,
        table: str,
        keys: Sequence[Any] | None,
        wanted: pc.Expression | None = None,
        columns: Sequence[str] | None = None,
    ) -> pa.Table:
        """The rows of a table's runs that `wanted` selects, in all versions.

        Parameters
        ----------
        keys
            Only rows with these leading keys, ascending, are needed; None for all.

        Raises
        ------
        NotFound
            If the bucket has no such table.
        Incomplete
            If rows that may be asked for are damaged or lost.
        Unavailable
            If the store fails, or if runs went on disappearing while they were read.
        """
        with reaching(self.root):
            for _ in range(LISTINGS):
                try:
                    return self._rows(table, keys, wanted, columns)
                except FileNotFoundError as error:
                    gone = error
        raise Unavailable(f"runs of {self.root} go on disappearing; read again later") from gone

    def _rows(
        self,
        table: str,
        keys: Sequence[Any] | None,
        wanted: pc.Expression | None,
        columns: Sequence[str] | None,
    ) -> pa.Table:
        # Checkpoints first: all that they name was there before the listing.
        remembered = self._remembered(table)
        listed = self._listed(table)
        reader = RunReader(self.filesystem, table, keys, wanted, columns)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            opened = [*pool.map(reader.open, listed)]
            faults = [one for one in opened if isinstance(one, Fault)]
            found = {one.part.path: one for one in opened if isinstance(one, Opened)}
            parts = [one.part for one in found.values()]
            while True:
                view = view_of(parts, faults, remembered)
                new = [found[part.path] for part in view.live if found[part.path].rows is None]
                if not new:
                    break
                for one, more in pool.map(reader.read, new):  # of damaged ones read the inputs
                    found[one.part.path] = one
                    faults += more
        self._check(view, keys, {info.path for info in listed})
        return together([found[part.path] for part in view.live], columns)

    def _listed(self, table: str) -> list[fs.FileInfo]:
        """The parts of runs. Raises `NotFound`, `OSError`."""
        folder = fs.FileSelector(f"{self.root}/tables/{table}", allow_not_found=True)
        found = self.filesystem.get_file_info(folder)
        listed = [info for info in found if Name.parse(info.base_name)]
        if not listed:
            raise NotFound(f"{self.root} has no tables/{table}; check the path of the bucket")
        return sorted(listed, key=lambda info: info.path)

    def _remembered(self, table: str) -> list[Remembered]:
        """The parts that the newest checkpoint which can be read names. Raises `OSError`."""
        folder = fs.FileSelector(f"{self.root}/checkpoints/{table}", allow_not_found=True)
        found = self.filesystem.get_file_info(folder)
        names = {info.base_name: info.path for info in found}
        buckets = {match[1] for match in map(_BUCKET.fullmatch, names) if match}
        for name in sorted(filter(_CHECKPOINT.fullmatch, names), reverse=True):
            try:
                return twice(partial(self._parts_named_by, names[name], buckets))
            except (Unverified, FileNotFoundError):
                continue
        return []

    def _parts_named_by(self, checkpoint: str, buckets: Set[str]) -> list[Remembered]:
        """The parts that a checkpoint of one of `buckets` names. Raises `Unverified`, `OSError`."""
        with self.filesystem.open_input_file(checkpoint) as file:
            data = file.read()
        number, _, digest = checkpoint.rpartition("/")[2].removesuffix(".parquet").partition("-")
        if sha256(data).hexdigest()[:32] != digest:
            raise Unverified("its bytes do not have the digest in its name")
        rows, pairs = read_whole(data)
        check_checkpoint(pairs, int(number), buckets)
        return remembered_in(rows, self.root)

    def _check(self, view: View, keys: Sequence[Any] | None, listed: Set[str]) -> None:
        """Warn, or raise `Incomplete`, if the view may lack rows of these keys.

        Raises `FileNotFoundError` if a part that was not listed is there.
        """
        gaps = view.lacking(keys)
        if not gaps:
            return
        unlisted = [gap.path for gap in gaps if gap.path not in listed]
        infos = self.filesystem.get_file_info(unlisted)
        if found := [info.path for info in infos if info.type == fs.FileType.File]:
            raise FileNotFoundError(f"the listing left out {found[0]}")
        named = "; ".join(f"{gap.path}: {gap.why}" for gap in gaps[:SHOWN])
        more = f"; and {len(gaps) - SHOWN} more" if len(gaps) > SHOWN else ""
        text = f"rows may be lacking: {named}{more}; tell the operator"
        if self._errors == "raise":
            raise Incomplete(f"{text}, or read the others with errors='skip'")
        warnings.warn(text, IncompleteWarning, stacklevel=5)


@contextmanager
def reaching(store: str) -> Iterator[None]:
    """Raise `Unavailable` if the store fails."""
    try:
        yield
    except OSError as error:
        raise Unavailable(
            f"{store} cannot be read: {error}; check path, keys and endpoint"
        ) from None
