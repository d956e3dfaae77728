"""Vectorised decoding: DataFusion reads a batch of records, wrapped as one Avro container.

DataFusion is about fifteen times as fast as decoding record by record, but it is unsafe with bad
input: a record followed by left-over bytes makes it loop for ever, and an empty record gives no
row. So `Decoder.decode` runs in a process that may be killed. Then `check`, which is slow but safe,
finds the bad record.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
from datafusion import Expr, SessionConfig, SessionContext, col
from datafusion.functions import when

from stampede.alerts.arrays import chosen
from stampede.alerts.container import make_blocks
from stampede.alerts.framing import WriterSchema, whole_record
from stampede.errors import DecoderFailed
from stampede.runtime.decompression import Bytes


class BatchFile(Protocol):
    """The file that holds a decoder's batches, one at a time."""

    def write(self, pieces: Sequence[Bytes]) -> str:
        """Replace the content; returns the path. Raises `Overloaded` if there is no room."""

    def release(self) -> None:
        """Free the memory of the batch, which has been read."""


class Decoder:
    """Reads batches of records, one batch at a time.

    Parameters
    ----------
    file
        Holds a batch while DataFusion reads it.
    """

    def __init__(self, file: BatchFile) -> None:
        self._file = file
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
            Fields to keep: ``a``, or ``a.b`` for a field of a nested record. Those that the
            schema does not have are left out.

        Returns
        -------
        Table of one row per record, in order, and one chunk; columns are named as in `columns`.

        Raises
        ------
        DecoderFailed
            DataFusion refuses the batch, or returns another number of rows than records.
        Overloaded
            There is no room for the batch; no alert is at fault.
        """
        if schema.by_record:
            return chosen(_by_record(schema, records), columns)
        wanted = [
            _column(name, schema.fields).alias(name)
            for name in columns
            if name.split(".")[0] in schema.fields
        ]
        path = self._file.write([schema.header, *make_blocks(records)])
        try:
            batches = self._context.read_avro(path).select(*wanted).collect()
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # the binding raises bare Exception, and its own for panics
            raise DecoderFailed(f"{type(error).__name__}: {str(error)[:300]}") from error
        finally:
            self._file.release()
        table = pa.Table.from_batches(batches) if batches else pa.table({})
        if table.num_rows != len(records):
            raise DecoderFailed(f"{len(records)} records went in, {table.num_rows} rows came out")
        return table.combine_chunks()


def _column(name: str, fields: Mapping[str, Any]) -> Expr:
    top, *rest = name.split(".")
    record = expression = col(f'"{top}"')
    for part in rest:
        expression = expression[part]
    if rest and isinstance(fields[top], list):  # a union: a null record's fields are not null
        return when(record.is_not_null(), expression).end()
    return expression


def _by_record(schema: WriterSchema, records: Sequence[Sequence[Bytes]]) -> pa.Table:
    """All fields that can be read, by fastavro: up to 10 ms a record. Raises `Undecodable`."""
    assert schema.by_record
    rows = [whole_record(b"".join(pieces), *schema.by_record) for pieces in records]
    return pa.Table.from_pylist(rows, schema.columns).combine_chunks()


def check(schema: WriterSchema, record: Bytes) -> None:
    """Raise `Undecodable` unless the bytes are exactly one record of the schema.

    fastavro skips every field instead of building it, so a history of any length needs no memory.
    """
    no_fields = {"type": "record", "name": schema.parsed["name"], "fields": []}
    whole_record(record, schema.parsed, no_fields)
