"""Formats of the answer to a cone search, written piece by piece.

Each has a method `add`, the bytes of some rows, and a method `end`, the last bytes, which say why
the answer may lack rows (`stampede.read.notes`).
"""

import json
from collections.abc import Callable, Sequence
from functools import partial

import pyarrow as pa

from stampede.read.cone_votable import VOTableWriter
from stampede.read.formats import plain_values
from stampede.read.stream_writers import CsvWriter, ParquetWriter, Writer

NONE = pa.array([], pa.string())


class JsonWriter:
    """``{…, "objects": [{…}, …]}``; `head` are the members before the objects."""

    media_type = "application/json"

    def __init__(self, head: dict[str, float]) -> None:
        self._before = json.dumps(head, separators=(",", ":"))[:-1] + ',"objects":['

    def add(self, found: pa.Table) -> bytes:
        """The objects in rows of `cone_search.FOUND`."""
        if not found.num_rows:
            return b""
        rows = json.dumps(plain_values(found).to_pylist(), separators=(",", ":"))[1:-1]
        before, self._before = self._before, ","
        return (before + rows).encode()

    def end(self, missing: object = NONE, incomplete: Sequence[str] = ()) -> bytes:
        """The end of the document."""
        before = self._before if self._before != "," else ""
        why = f',"incomplete":{json.dumps([*incomplete])}' if incomplete else ""
        return f"{before}]{why}}}".encode()


def writers(schema: pa.Schema, head: dict[str, float]) -> dict[str, Callable[[], Writer]]:
    """The formats of an answer with these columns, by name, the default first."""
    return {
        "json": partial(JsonWriter, head),
        "csv": partial(CsvWriter, schema),
        "parquet": partial(ParquetWriter, schema),
        "votable": partial(VOTableWriter, schema),
    }
