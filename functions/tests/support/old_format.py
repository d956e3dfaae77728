"""Objects as the store wrote them before there were checksums, made with pyarrow alone."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from stampede.store.coverage import Coverage
from stampede.store.run_format import GROUP_ROWS
from stampede.store.runs import RunName, digest
from stampede.store.schema import TableSpec


def old_run(
    spec: TableSpec, rows: pa.Table, coverage: Coverage, lies: dict | None = None
) -> tuple[str, bytes]:
    """Key and bytes of a run of level 0 with the sorted `rows`; without the column `crc32`.

    `lies` replace what the footer says of the rows.
    """
    rows = rows.cast(spec.schema).replace_schema_metadata()
    rows = rows.select([name for name in rows.schema.names if name != "crc32"])
    leading = rows[spec.leading]
    pairs = {
        "level": 0,
        "inputs": [],
        "rows": rows.num_rows,
        "first": leading[0].as_py(),
        "last": leading[-1].as_py(),
    } | (lies or {})
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        rows.schema,
        version="2.6",
        compression="LZ4",
        use_dictionary=[field.name for field in rows.schema if pa.types.is_string(field.type)],
        write_statistics=[spec.leading],
        store_schema=False,
    ) as writer:
        writer.write_table(rows, row_group_size=GROUP_ROWS)
        footer = {f"stampede.{name}": json.dumps(value) for name, value in pairs.items()}
        writer.add_key_value_metadata(footer | {"stampede.coverage": coverage.to_json()})
    data = sink.getvalue().to_pybytes()
    return RunName(0, digest(data)).key(spec.name), data


def old_file(
    rows: pa.Table, coverage: Coverage, without_schema: bool = False, **options: object
) -> bytes:
    """A pack or an object of dead letters."""
    sink = pa.BufferOutputStream()
    rows = rows.replace_schema_metadata()
    with pq.ParquetWriter(sink, rows.schema, store_schema=not without_schema, **options) as writer:
        writer.write_table(rows, row_group_size=rows.num_rows)
        writer.add_key_value_metadata({"stampede.coverage": coverage.to_json()})
    return sink.getvalue().to_pybytes()
