"""Raw alerts: all fields of each alert in the survey's own columns, for bulk analysis.

``alerts/<survey>/<schema>/<night>/[merged<level>-]<digest>.parquet``: one row per alert, nested as
in the survey's schema, without cutouts (they are in the packs) and without history (each of its
points was an alert of its own). Files of one schema lie together, so that any tool reads them as
one table. An alert that was sent twice may be there twice: readers take one row of each id
(docs/store.md).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

import pyarrow as pa

from stampede.alerts.schema_groups import LEFT_OUT, RawAlerts
from stampede.errors import Damaged
from stampede.store.packs.pack import INPUTS
from stampede.store.parquet.checksums import PARQUET_ERRORS, open_file, read_file, write
from stampede.store.programmes.keys import programids_of, suffix
from stampede.store.runs.run_name import digest, name_of

PREFIX = "alerts/"
_ROWS = "stampede.input_rows"


def write_raw(alerts: RawAlerts) -> tuple[str, memoryview, str]:
    """Key, bytes and SHA-256 of the Parquet object. The same alerts give the same bytes."""
    schema = alerts.table.schema
    # LZ4: hundreds of columns of a few hundred rows, and Arrow takes 20 us to begin a Zstandard
    # frame. No dictionaries, which cost more than they save too.
    data = memoryview(
        write(alerts.table, compression="lz4", use_dictionary=False, write_statistics=False)
    )
    of_schema, whole = digest(str(schema))[:8], sha256(data).hexdigest()
    name = name_of(whole) + suffix([] if alerts.programid is None else [alerts.programid])
    key = f"{PREFIX}{alerts.survey}/{of_schema}/{alerts.night}/{name}.parquet"
    return key, data, whole


class Input(NamedTuple):
    """A file that was merged: its key and its rows."""

    key: str
    rows: pa.Table


def read_raw(key: str, data: bytes | memoryview) -> pa.Table:
    """The rows of a file, verified; its schema has the metadata that they were written with.

    Raises `Damaged`.
    """
    name = key.rpartition("/")[2]
    if name_of(sha256(data).hexdigest()) not in name:
        raise Damaged(f"{key} is damaged: its bytes do not have the digest in its name")
    rows = read_file(key, open_file(key, data))
    return rows.replace_schema_metadata(_of_alerts(rows.schema.metadata or {}))


def merge_raw(inputs: Sequence[Input], level: int) -> tuple[str, memoryview, str]:
    """Key, bytes and SHA-256 of one file of the rows of several, one after the other.

    They have the same schema and are of the same night and programme.
    """
    rows = pa.concat_tables(one.rows for one in inputs)
    counts = [one.rows.num_rows for one in inputs]
    pairs = {
        INPUTS: json.dumps([one.key for one in inputs]),
        _ROWS: json.dumps(counts),
    }
    data = memoryview(write(rows, pairs, compression="zstd"))
    whole = sha256(data).hexdigest()
    folder = inputs[0].key.rpartition("/")[0]
    end = suffix(programids_of(inputs[0].key))
    return f"{folder}/merged{level}-{name_of(whole)}{end}.parquet", data, whole


def merged_inputs(key: str, data: bytes | memoryview) -> Iterator[Input]:
    """The files that a file was merged of, out of its own bytes. Raises `Damaged`."""
    rows = read_raw(key, data)
    pairs = open_file(key, data).metadata.metadata
    try:
        keys, counts = (json.loads(pairs[name.encode()]) for name in (INPUTS, _ROWS))
        if sum(counts) != rows.num_rows:
            raise ValueError("it has other rows")
        at = 0
        for each, count in zip(keys, counts, strict=True):
            yield Input(each, rows.slice(at, count).combine_chunks())
            at += count
    except PARQUET_ERRORS as error:
        raise Damaged(f"{key} does not say what it was merged of: {error}") from None


def same_rows(one: pa.Table, other: pa.Table) -> bool:
    """Whether two tables have the same rows in the same order, bit for bit, and the same schema."""
    return one.num_rows == other.num_rows and bool(_stream(one).equals(_stream(other)))


def _stream(rows: pa.Table) -> pa.Buffer:
    """The rows as a stream of Arrow; equal rows give equal bytes, however they lie in memory."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows.take(pa.array(range(rows.num_rows))).combine_chunks())
    return sink.getvalue()


def _of_alerts(pairs: Mapping[bytes, bytes]) -> dict[bytes, bytes] | None:
    """The metadata that came with the alerts; the rest is of one file."""
    name = LEFT_OUT.encode()
    return {name: pairs[name]} if name in pairs else None
