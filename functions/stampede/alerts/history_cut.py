"""History rows of observing programmes that are not stored, cut out of an Avro record.

The bytes of these rows go, and the count of the rows changes. Every other byte stays as the survey
sent it: nothing is decoded and written anew, so nothing can be written differently.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from stampede.alerts.container import read_varint, varint
from stampede.alerts.framing import WriterSchema
from stampede.alerts.schemas import PRIMITIVES, Schema
from stampede.alerts.surveys.survey import PROGRAMID
from stampede.errors import Undecodable
from stampede.runtime.decompression import Bytes

_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}


class CutRecord(NamedTuple):
    """A record without some rows of its history, and how many these were."""

    record: bytes
    rows: int


def without_rows(
    schema: WriterSchema, record: Bytes, own: int, programids: Collection[int]
) -> CutRecord:
    """A record without the history rows of programmes other than `programids`.

    Parameters
    ----------
    own
        The programme of the alert, which is that of rows that do not say theirs.

    Raises
    ------
    Undecodable
        The bytes are not a record of the schema.
    """
    data = bytes(record)
    values = _Values(data, schema.parsed["__named_schemas"])
    pieces: list[bytes] = []
    at = rows = 0
    for field in schema.parsed["fields"]:
        end = values.end(field["type"], at)
        piece, cut = data[at:end], 0
        if field["name"] in schema.survey.HISTORY_FIELDS:
            piece, cut = _history(values, field["type"], at, own, programids)
        pieces.append(piece if cut else data[at:end])
        at, rows = end, rows + cut
    if at != len(data):
        raise Undecodable("the bytes do not fit the schema: some are left over")
    return CutRecord(b"".join(pieces), rows)


def _history(
    values: "_Values", kind: Schema, at: int, own: int, programids: Collection[int]
) -> tuple[bytes, int]:
    """A history without rows of other programmes, and how many these were."""
    start = at
    kind, at = values.chosen(kind, at)
    if not isinstance(kind, dict) or kind["type"] != "array":
        return b"", 0  # it has no history
    branch = values.data[start:at]
    kept: list[bytes] = []
    items: list[tuple[int, int]] = []
    values.end_of_items(kind, at, items)
    for begin, end in items:
        found = values.number(kind["items"], PROGRAMID, begin)
        if (own if found is None else found) in programids:
            kept.append(values.data[begin:end])
    count = varint(len(kept)) if kept else b""
    return b"".join([branch, count, *kept, varint(0)]), len(items) - len(kept)


class _Values:
    """Where the values of a record begin and end. Every method raises `Undecodable`."""

    def __init__(self, data: bytes, names: Mapping[str, Schema]) -> None:
        self.data = data
        self._names = names

    def chosen(self, kind: Schema, at: int) -> tuple[Schema, int]:
        """The type of the value at `at`, its branch of a union, and where the value begins."""
        if isinstance(kind, list):
            number, at = read_varint(self.data, at)
            if not 0 <= number < len(kind):
                raise Undecodable("the bytes do not fit the schema: a union has no such branch")
            kind = kind[number]
        if isinstance(kind, str):
            return self._names.get(kind, kind), at
        return (kind["type"] if kind["type"] in PRIMITIVES else kind), at  # with a logical type

    def end(self, kind: Schema, at: int) -> int:
        """Where the value that begins at `at` ends."""
        kind, at = self.chosen(kind, at)
        name = kind if isinstance(kind, str) else kind["type"]
        if name in _SIZES:
            at += _SIZES[name]
        elif name in ("int", "long", "enum"):
            _, at = read_varint(self.data, at)
        elif name in ("bytes", "string"):
            size, at = read_varint(self.data, at)
            at += size if size >= 0 else len(self.data) + 1
        elif name == "record":
            for field in kind["fields"]:
                at = self.end(field["type"], at)
        elif name == "fixed":
            at += kind["size"]
        else:
            return self.end_of_items(kind, at)
        if at > len(self.data):
            raise Undecodable("the record is cut off")
        return at

    def end_of_items(
        self, kind: Schema, at: int, items: list[tuple[int, int]] | None = None
    ) -> int:
        """Where an array or a map ends; where each item begins and ends is added to `items`.

        Without a list nothing is kept: an array may have an item in each byte of a large alert.
        """
        while True:
            count, at = read_varint(self.data, at)
            if count < 0:  # the specification's long form: the block's size in bytes follows
                _, at = read_varint(self.data, at)
            if not count:
                return at
            for _ in range(abs(count)):
                begin = at
                if kind["type"] == "map":
                    at = self.end("string", at)
                at = self.end(kind["items" if kind["type"] == "array" else "values"], at)
                if items is not None:
                    items.append((begin, at))

    def number(self, kind: Schema, name: str, at: int) -> int | None:
        """The integer in a field of the record at `at`; None if the field or the record is null."""
        kind, at = self.chosen(kind, at)
        for field in kind["fields"] if kind != "null" else ():
            if field["name"] == name:
                found, at = self.chosen(field["type"], at)
                if found == "null":
                    return None
                if found not in ("int", "long"):  # `Rows.integers` refuses such a schema
                    raise Undecodable(f"the history's {name} is no integer")
                return read_varint(self.data, at)[0]
            at = self.end(field["type"], at)
        return None
