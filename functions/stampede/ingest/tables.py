"""Tables in files of others: Parquet, CSV or JSON, with columns that have several names."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq  # noqa: TID251 - files of others have no checksums of ours

from stampede.errors import SetupError

ENDINGS = (".parquet", ".csv", ".json")
"""How files of tables end. One that ends otherwise is Parquet if it begins so, else CSV."""
_PARQUET = b"PAR1"


class TableFile(NamedTuple):
    """A file: its name, and what opens it to read from any place."""

    name: str
    open: Callable[[], Any]


def names_in(file: TableFile) -> list[str]:
    """The paths of a table's columns. Raises `SetupError`."""
    with _readable(file) as opened:
        ending = _ending(file, opened)
        if ending == ".csv":  # of which the beginning is enough
            return [str(name) for name in pyarrow.csv.open_csv(opened).schema.names]
        if ending == ".parquet":
            schema = pq.read_metadata(opened).schema
            return [schema.column(number).path for number in range(len(schema))]
    return [str(name) for name in read_table(file).column_names]


def first_of(wanted: Sequence[str], names: Sequence[str]) -> str | None:
    """The first of the wanted names that a table has, in any case, as it has it; else None."""
    by_name = {name.lower(): name for name in names}
    return next((by_name[name.lower()] for name in wanted if name.lower() in by_name), None)


def read_table(file: TableFile, columns: list[str] | None = None) -> pa.Table:
    """A table, or these columns of it. Raises `SetupError`."""
    with _readable(file) as opened:
        ending = _ending(file, opened)
        if ending == ".parquet":
            return pq.ParquetFile(opened).read(columns)
        if ending == ".csv":
            table = pyarrow.csv.read_csv(opened)
        else:
            table = pa.Table.from_pylist(json.load(opened))
        return table.select(columns) if columns else table


def _ending(file: TableFile, opened: Any) -> str:
    """One of `ENDINGS`."""
    for ending in ENDINGS:
        if file.name.endswith(ending):
            return ending
    begin = opened.read(len(_PARQUET))
    opened.seek(0)
    return ".parquet" if begin == _PARQUET else ".csv"


@contextmanager
def _readable(file: TableFile) -> Iterator[Any]:
    """A file, opened. Raises `SetupError` if it, or what is read of it, is no table."""
    try:
        opened = file.open()
        try:
            yield opened
        finally:
            opened.close()
    except (OSError, ValueError, TypeError, AttributeError, KeyError, pa.ArrowException) as error:
        why = getattr(error, "strerror", None) or error
        raise SetupError(f"{file.name} cannot be read: {why}") from None
