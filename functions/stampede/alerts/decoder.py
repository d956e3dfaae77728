"""Vectorised decoding: a batch of records wrapped as one Avro container, read into Arrow.

DataFusion's reader is some fifteen times as fast as decoding record by record, but must not be
trusted with a stranger's bytes: a record followed by left-over bytes makes it spin for ever, an
empty one vanishes. So `decode` runs in a process that may be killed, and `check` tells, slowly
and surely, which record was to blame.
"""

import errno
import io
import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO

import fastavro
import pyarrow as pa
from datafusion import SessionConfig, SessionContext, col

from stampede.alerts.container import Bytes, make_blocks
from stampede.alerts.framing import WriterSchema
from stampede.errors import Overloaded, StampedeError, Undecodable

PADDING = bytes(16)
PIECES_AT_ONCE = 1024  # that one call can write (IOV_MAX)
KEPT_BYTES = 64 << 20  # of the spool's memory, from batch to batch: as large as one may be
NOTHING = fastavro.parse_schema({"type": "record", "name": "alert", "fields": []})


class DecoderFailed(StampedeError):
    """The vectorised reader gave up on a batch: check its records one by one."""

    name = "decoder-failed"


class Decoder:
    """Reads batches of records through a file in memory, one batch at a time.

    The file is written over and over, as memory that was given back comes back as zeros, which is
    as slow as a second copy (docs/adr/0011-one-file-to-decode.md). It goes with the decoder.

    Parameters
    ----------
    spool
        Directory in memory, where the file is.
    guard
        Given the bytes to decode and entered around the native call, which may never return
        and cannot be interrupted.
    """

    def __init__(
        self, spool: Path, guard: Callable[[int], AbstractContextManager] = nullcontext
    ) -> None:
        self._spool = spool
        self._guard = guard
        self._file: IO[bytes] | None = None
        self._context = SessionContext(SessionConfig().with_target_partitions(1))

    def decode(
        self, schema: WriterSchema, records: Sequence[Sequence[Bytes]], columns: Sequence[str]
    ) -> pa.Table:
        """Decode records of one schema.

        Parameters
        ----------
        records
            Each in one piece or more.
        columns
            Fields to keep, ``a`` or, out of a record, ``a.b``; fields that the schema
            does not have are left out.

        Returns
        -------
        Table of one row per record, in order, and one chunk; a column is named as asked for.

        Raises
        ------
        DecoderFailed
            The reader refuses the batch, or gives another number of rows than records.
        Overloaded
            There is no room in the spool: no alert's fault.
        """
        wanted = [
            _column(name).alias(name) for name in columns if name.split(".")[0] in schema.fields
        ]
        try:
            file = self._open()
            size = _write(file.fileno(), [schema.header, *make_blocks(records)])
        except OSError as error:
            raise Overloaded(f"no room in the spool {self._spool}: {error.strerror}") from error
        try:
            with self._guard(size):
                batches = self._context.read_avro(file.name).select(*wanted).collect()
        except Exception as error:  # the binding raises bare Exception
            raise DecoderFailed(f"{type(error).__name__}: {error}") from error
        finally:
            os.truncate(file.fileno(), min(size, KEPT_BYTES))
        table = pa.Table.from_batches(batches) if batches else pa.table({})
        if table.num_rows != len(records):
            raise DecoderFailed(f"{len(records)} records went in, {table.num_rows} rows came out")
        return table.combine_chunks()

    def _open(self) -> IO[bytes]:
        """The file; another where somebody has removed it. Raises `OSError`."""
        if self._file is None or not os.fstat(self._file.fileno()).st_nlink:
            self._file = NamedTemporaryFile(suffix=".avro", dir=self._spool)  # noqa: SIM115
        return self._file


def _write(file: int, pieces: Sequence[Bytes]) -> int:
    """Have a file hold these and nothing else; its size. Raises `OSError`, and it is empty then."""
    size = 0
    try:
        for first in range(0, len(pieces), PIECES_AT_ONCE):
            size += os.pwritev(file, pieces[first : first + PIECES_AT_ONCE], size)
        if size < sum(map(len, pieces)):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    except OSError:
        os.truncate(file, 0)
        raise
    os.truncate(file, size)
    return size


def _column(name: str):
    top, *rest = name.split(".")
    expression = col(f'"{top}"')
    for part in rest:
        expression = expression[part]
    return expression


def check(schema: WriterSchema, record: Bytes) -> None:
    """Raise `Undecodable` unless the record is one of the schema and ends where its bytes end.

    Every field is skipped rather than built, so a history of any length needs no memory. As
    skipping takes no notice of the end of the bytes, there is padding behind it: a reader that
    has come to stand there has read a record that is cut off.
    """
    data = io.BytesIO(bytes(record) + PADDING)
    try:
        fastavro.schemaless_reader(data, schema.parsed, NOTHING)
    except Exception as error:  # the many ways in which bytes can be no Avro
        reason = str(error) or type(error).__name__
        raise Undecodable(f"the bytes do not fit the schema: {reason}") from error
    left = len(record) - data.tell()
    if left > 0:
        raise Undecodable(f"{left:,} bytes are left over after the end of the record")
    if left < 0:
        raise Undecodable("the record is cut off")
