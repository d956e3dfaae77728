"""Runs whose footers say what a test wants, made with pyarrow, and objects of another format."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from stampede.store.offsets.coverage import Coverage
from stampede.store.parquet.checksums import PLACEHOLDER, seal
from stampede.store.runs.schema import TableSpec


def made_run(spec: TableSpec, rows: pa.Table, coverage: Coverage, lies: dict) -> bytes:
    """A run of level 0 with the sorted `rows`; `lies` replace what the footer says of them."""
    rows = rows.cast(spec.schema).replace_schema_metadata()
    leading = rows[spec.leading]
    pairs = {
        "level": 0,
        "table": spec.name,
        "inputs": [],
        "rows": rows.num_rows,
        "first": leading[0].as_py(),
        "last": leading[-1].as_py(),
    } | lies
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, rows.schema, store_schema=False) as writer:
        writer.write_table(rows)
        footer = {f"stampede.{name}": json.dumps(value) for name, value in pairs.items()}
        writer.add_key_value_metadata(
            PLACEHOLDER | footer | {"stampede.coverage": coverage.to_json()}
        )
    return seal(sink.getvalue()).to_pybytes()


def of_format(data: bytes | memoryview, number: str) -> bytes:
    """An object with a format of as many digits as its own, its footer's checksum included."""
    name = b"stampede.format"
    at = bytes(data).rindex(name) + len(name) + 2  # after the value's type and length
    changed = bytearray(data)
    changed[at : at + len(number)] = number.encode()
    return seal(pa.py_buffer(changed)).to_pybytes()
