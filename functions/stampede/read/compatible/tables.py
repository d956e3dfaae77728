"""A table as others send it: JSON rows, CSV, Parquet or VOTable."""

from collections.abc import Sequence

import pyarrow as pa
import pydantic_core
from starlette.responses import Response

from stampede.lookup.errors import BadParameter
from stampede.read.compatible.measurements import Names, records
from stampede.read.errors import NotHeld
from stampede.read.formats.light_curves import FORMATS, UCDS, to_csv, to_parquet
from stampede.read.formats.votable import VOTableWriter
from stampede.read.web.conditional import REVALIDATE

NAMES = ("json", "csv", "parquet", "votable")


def chosen(table: pa.Table, columns: str, always: Sequence[str] = ()) -> pa.Table:
    """The columns of these names, parted by commas, and those of `always`; ``*`` is all.

    Raises `NotHeld` at a name that the table does not have.
    """
    names = columns.replace(" ", "").split(",")
    if names in (["*"], [""]):
        return table
    for name in names:
        if name not in table.column_names:
            known = ", ".join(table.column_names)
            raise NotHeld(f"columns: Stampede has no {name[:60]}. It has {known}")
    return table.select([*dict.fromkeys([*names, *always])])


def written(table: pa.Table, format: str, names: Names) -> Response:
    """The response with a table. `names` are Stampede's columns by those of the table.

    Raises `BadParameter` if there is no such format.
    """
    if format not in NAMES:
        raise BadParameter("output-format", f"must be one of {', '.join(NAMES)}: {format[:40]!r}")
    headers = {"Cache-Control": REVALIDATE}
    return Response(_bytes(table, format, names), 200, headers, FORMATS[format].media_type)


def _bytes(table: pa.Table, format: str, names: Names) -> bytes:
    if format == "csv":
        return to_csv(table)
    if format == "parquet":
        return to_parquet(table)
    if format == "votable":
        ucds = {name: UCDS.get(names.get(name, ""), "meta") for name in table.column_names}
        writer = VOTableWriter("table", table.schema, ucds)
        return writer.add(table) + writer.end()
    return pydantic_core.to_json(records(table), inf_nan_mode="null")
