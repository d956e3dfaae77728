"""Tables that come with a query, as VOTables (TAP 1.1, section 2.7.6).

Read by Python's expat alone, without entities: astropy's reader is banned
(docs/adr/0054-native-code.md), and a table of positions needs little of the format.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol
from xml.parsers import expat

import pyarrow as pa

from stampede.lookup.errors import BadParameter

MOST_ROWS = 100_000
MOST_COLUMNS = 100
MOST_CELL = 1000
"""Characters of a cell."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}")
_INTEGERS = {"unsignedByte": pa.int16(), "short": pa.int16(), "int": pa.int32(), "long": pa.int64()}
_FLOATS = {"float": pa.float32(), "double": pa.float64()}
_TEXTS = ("char", "unicodeChar")
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}


class Uploads(Protocol):
    """The parameters of a request and the files in it."""

    @property
    def repeated(self) -> list[tuple[str, str]]:
        """Name in upper case and value of each parameter."""

    @property
    def files(self) -> dict[str, bytes]:
        """Files by name."""


def uploaded(form: Uploads) -> dict[str, pa.Table]:
    """The tables that UPLOAD names, by name in lower case. Raises `BadParameter`.

    ``UPLOAD=NAME,param:FILE`` names a file in the same form. A URL is refused: this service sends
    no requests for strangers.
    """
    found: dict[str, pa.Table] = {}
    for parameter, text in form.repeated:
        if parameter != "UPLOAD":
            continue
        for item in text.split(";"):
            name, _, place = item.partition(",")
            kind, _, file = place.partition(":")
            if not _NAME.fullmatch(name):
                raise BadParameter("UPLOAD", f"UPLOAD must be NAME,param:FILE: {item[:60]!r}")
            if kind != "param":
                raise BadParameter("UPLOAD", "send the table inline: UPLOAD=NAME,param:FILE")
            if file not in form.files:
                raise BadParameter("UPLOAD", f"the form has no file {file[:60]!r}")
            if name.lower() in found:
                raise BadParameter("UPLOAD", f"two tables are called {name}")
            found[name.lower()] = read_votable(form.files[file])
    return found


def read_votable(data: bytes) -> pa.Table:
    """The first table of a VOTable: numbers, texts and booleans in TABLEDATA.

    Names are in lower case. Raises `BadParameter`.
    """
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = _no_doctype
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise BadParameter("UPLOAD", f"the uploaded table is no XML: {error}") from None
    return reader.table()


def _no_doctype(*_: object) -> None:
    raise BadParameter("UPLOAD", "an uploaded table has no DOCTYPE")


class _Reader:
    """Fields and cells, as the parser meets them."""

    def __init__(self) -> None:
        self._fields: list[Mapping[str, str]] = []
        self._columns: list[list[Any]] = []
        self._reads: list[Callable[[str], Any]] = []
        self._cell: list[str] | None = None
        self._row: list[str] = []
        self._done = self._any = False

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        """The start of an element."""
        name = tag.rpartition(":")[2]
        if self._done:
            return
        if name == "FIELD":
            self._fields.append(attributes)
            if len(self._fields) > MOST_COLUMNS:
                raise BadParameter("UPLOAD", f"more than {MOST_COLUMNS} columns")
        elif name in ("BINARY", "BINARY2", "FITS", "PARQUET"):
            raise BadParameter("UPLOAD", f"write the table as TABLEDATA, not {name}")
        elif name == "TABLEDATA":
            self._any = True
            self._reads = [_reader_of(field) for field in self._fields]
            self._columns = [[] for _ in self._fields]
        elif name == "TR":
            self._row = []
        elif name == "TD":
            self._cell = []

    def text(self, data: str) -> None:
        """Characters."""
        if self._cell is not None:
            self._cell.append(data)

    def end(self, tag: str) -> None:
        """The end of an element."""
        name = tag.rpartition(":")[2]
        if self._done:
            return
        if name == "TD" and self._cell is not None:
            text, self._cell = "".join(self._cell), None
            if len(text) > MOST_CELL:
                raise BadParameter("UPLOAD", f"a cell has more than {MOST_CELL} characters")
            self._row.append(text)
        elif name == "TR":
            self._add()
        elif name == "TABLE":
            self._done = True

    def _add(self) -> None:
        if len(self._row) != len(self._fields):
            raise BadParameter("UPLOAD", "a row has more or fewer cells than there are columns")
        number = len(self._columns[0]) if self._columns else 0
        if number == MOST_ROWS:
            raise BadParameter("UPLOAD", f"more than {MOST_ROWS:,} rows: split the table")
        for column, read, text in zip(self._columns, self._reads, self._row, strict=True):
            try:
                column.append(read(text.strip()) if text.strip() else None)
            except (ValueError, KeyError):
                raise BadParameter(
                    "UPLOAD", f"row {number}: {text[:40]!r} is not what its FIELD says"
                ) from None

    def table(self) -> pa.Table:
        """The table that was read. Raises `BadParameter`."""
        if not self._any or not self._fields:
            raise BadParameter("UPLOAD", "the uploaded file has no TABLE with TABLEDATA")
        names = [field["name"].lower() for field in self._fields]
        if len(set(names)) < len(names) or any(name.startswith("__") for name in names):
            raise BadParameter("UPLOAD", "two columns have the same name, or one begins with __")
        arrays = []
        for field, values in zip(self._fields, self._columns, strict=True):
            try:
                arrays.append(pa.array(values, _type_of(field)))
            except (pa.ArrowInvalid, OverflowError):
                name = field["name"][:40]
                raise BadParameter("UPLOAD", f"a number of {name} is too large") from None
        return pa.table(arrays, names)


def _type_of(field: Mapping[str, str]) -> pa.DataType:
    kind = field.get("datatype", "")
    if kind in _TEXTS:
        return pa.string()
    if field.get("arraysize", "1") != "1":
        raise BadParameter("UPLOAD", f"{field.get('name', '')[:40]}: no arrays are read")
    found = {**_INTEGERS, **_FLOATS, "boolean": pa.bool_()}.get(kind)
    if found is None or "name" not in field:
        raise BadParameter("UPLOAD", f"a FIELD has no name, or the datatype {kind[:40]!r}")
    return found


def _reader_of(field: Mapping[str, str]) -> Callable[[str], Any]:
    """What makes a value of a cell's text."""
    kind = _type_of(field)
    if "name" not in field:
        raise BadParameter("UPLOAD", "a FIELD has no name")
    if pa.types.is_integer(kind):
        return int
    if pa.types.is_floating(kind):
        return float
    return (lambda text: _BOOLEANS[text.lower()]) if pa.types.is_boolean(kind) else str
