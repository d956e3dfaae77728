"""Formats of the response to a cone search, written piece by piece.

Each has a method `add`, the bytes of some rows, and a method `end`, the last bytes, which say why
the response may lack rows (`stampede.lookup.response_warnings`).
"""

import json
from collections.abc import Callable
from functools import partial
from itertools import chain, repeat

import pyarrow as pa

from stampede.lookup.cone_search import FOUND
from stampede.read.formats.completeness import COMPLETE, Completeness
from stampede.read.formats.datalink import services_of_objects
from stampede.read.formats.votable import VOTableWriter
from stampede.read.formats.writers import CsvWriter, ParquetWriter, Writer
from stampede.runtime import lazy_arrow_compute as pc

# Simple Cone Search 1.03 demands the UCDs of 1998 for id and position.
_UCDS = {
    "object_id": "ID_MAIN",
    "survey": "meta.curation",
    "ra": "POS_EQ_RA_MAIN",
    "dec": "POS_EQ_DEC_MAIN",
    "distance": "pos.angDistance",
    "detections": "meta.number",
    "first_mjd": "time.start",
    "last_mjd": "time.end",
}


class JsonWriter:
    """``{…, "objects": [{…}, …]}``; `head` are the members before the objects."""

    media_type = "application/json"
    has_end = False

    def __init__(self, head: dict[str, float]) -> None:
        self._before = json.dumps({**head, "objects": []}, separators=(",", ":"))[:-2]

    def add(self, found: pa.Table) -> bytes:
        """The objects in rows of `cone_search.FOUND`."""
        if not found.num_rows:
            return b""
        before, self._before = self._before, ","
        return (before + ",".join(_objects(found).to_pylist())).encode()

    def end(self, completeness: Completeness = COMPLETE) -> bytes:
        """The end of the document."""
        before = self._before if self._before != "," else ""
        why = f',"incomplete":{json.dumps([*completeness.reasons])}' if completeness.reasons else ""
        return f"{before}]{why}}}".encode()


def _objects(found: pa.Table) -> pa.ChunkedArray:
    """Each row as a JSON object. Ids are letters and digits (`bounds.OBJECT_ID`), numbers finite.

    Arrow writes 4 times as many rows a second as the module `json`.
    """
    pieces: list[str | pa.ChunkedArray] = []
    for before, name in zip(chain("{", repeat(",")), found.column_names, strict=False):
        column = found[name]
        quote = '"' if pa.types.is_string(column.type) else ""
        text = pc.fill_null(pc.cast(column, pa.string()), "null")
        pieces += [f'{before}"{name}":{quote}', text, quote]
    return pc.binary_join_element_wise(*pieces, "}", "")


def votable_writer(origin: str = "") -> VOTableWriter:
    """A VOTable of rows of `cone_search.FOUND`, as Simple Cone Search 1.03 asks for.

    If the client reaches the server by `origin`, it finds the links of each row's object.
    """
    services = services_of_objects(origin, "object_id")
    return VOTableWriter("positions", FOUND, _UCDS, text="char", services=services)


def writers(head: dict[str, float], origin: str = "") -> dict[str, Callable[[], Writer]]:
    """The formats of a response, by name, the default first."""
    return {
        "json": partial(JsonWriter, head),
        "csv": partial(CsvWriter, FOUND),
        "parquet": partial(ParquetWriter, FOUND),
        "votable": partial(votable_writer, origin),
    }
