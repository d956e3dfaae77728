"""Measurements in JSON: an object a line, or a document with one object or a list of them."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

from stampede.archives.layouts import MEASURES, Asked, Layout, Part
from stampede.archives.measurements import MEASURED, Fault, Measured
from stampede.errors import Damaged

MOST_DOCUMENT = 256 << 20
"""Bytes of a document that is not a line each: it is read as a whole."""
MOST_LINE = 64 << 20
MEASUREMENTS = 20_000
"""Measurements that are in memory at once, unless one row has more."""
FIRST = 100
"""Rows whose names are those of the columns."""
_TEXTS = (Part.OBJECT_ID, Part.BAND, Part.QUALITY)
_INTEGERS = (Part.SOURCE_ID, Part.DETECTOR)
_MOST_INT = 1 << 63

Row = Mapping[str, Any] | Fault


class JsonRows:
    """A JSON file.

    Raises `Damaged` if it is none, `SetupError` if its columns are not known.
    """

    def __init__(self, path: Path, asked: Asked) -> None:
        self._file = path.open("rb")
        try:
            self._rows = _rows(self._file)
            first = [*islice(self._rows, FIRST)]
            names = dict.fromkeys(
                name for _, row in first if not isinstance(row, Fault) for name in _names(row)
            )
            if not names:
                why = next((row.why for _, row in first if isinstance(row, Fault)), "it is empty")
                raise Damaged(f"it has no object of JSON: {why}")
            self.layout = Layout.of([*names], asked)
            self._rows = chain(first, self._rows)
        except BaseException:
            self._file.close()
            raise

    def __iter__(self) -> Iterator[Measured]:
        """The measurements, in the order of the file. Raises `Damaged`."""
        while (some := self._some()).rows.num_rows or some.faults:
            yield some

    def _some(self) -> Measured:
        """The next rows, of about `MEASUREMENTS`; none at the end."""
        found: dict[str, list[Any]] = {name: [] for name in MEASURED.names}
        faults: list[Fault] = []
        for number, row in self._rows:
            if isinstance(row, Fault):
                faults.append(row)
                continue
            try:
                columns = _measurements(row, self.layout)
            except ValueError as error:
                faults.append(Fault(number, str(error)))
                continue
            count = len(columns[Part.OBJECT_ID])
            found["row"] += [number] * count
            for name in MEASURED.names[1:]:
                found[name] += columns.get(name, [None] * count)
            if len(found["row"]) + len(faults) >= MEASUREMENTS:
                break
        return Measured(pa.table(found, MEASURED), faults)

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _rows(file: IO[bytes]) -> Iterator[tuple[int, Row]]:
    """The objects in a file, with their numbers from 1 on. Raises `Damaged`."""
    first = file.readline(MOST_LINE)
    while first and not first.strip():
        first = file.readline(MOST_LINE)
    if first[:2] == b"\x1f\x8b":
        raise Damaged("it is compressed by gzip: unpack it first")
    if first.lstrip()[:1] == b"{" and not isinstance(_parsed(first, 1), Fault):
        yield 1, _parsed(first, 1)
        number = 1
        while line := file.readline(MOST_LINE):
            if line.strip():
                number += 1
                yield number, _parsed(line, number)
        return
    data = first + file.read(MOST_DOCUMENT)
    if len(data) > MOST_DOCUMENT:
        raise Damaged(f"it has more than {MOST_DOCUMENT >> 20} MB: write an object a line")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"it is neither Parquet nor JSON: {error}") from None
    for number, each in enumerate(document if isinstance(document, list) else [document], 1):
        yield number, each if isinstance(each, dict) else Fault(number, "it is no object of JSON")


def _parsed(line: bytes, number: int) -> Row:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        return Fault(number, f"it is not JSON: {error}")
    return found if isinstance(found, dict) else Fault(number, "it is no object of JSON")


def _names(row: Mapping[str, Any]) -> Iterator[str]:
    for name, value in row.items():
        inner = next(iter(value), None) if isinstance(value, list) else value
        if isinstance(inner, dict):
            yield from (f"{name}.{each}" for each in inner)
        else:
            yield name


def _measurements(row: Mapping[str, Any], layout: Layout) -> dict[str, Sequence[Any]]:
    """The measurements of one row by column of `MEASURED`. Raises `ValueError`, which says why."""
    values = {part: _value(row, name) for part, name in layout.columns.items()}
    lengths = {part: len(each) for part, each in values.items() if isinstance(each, list)}
    if len({*lengths.values()}) > 1:
        said = ", ".join(f"{layout.columns[part]} {n}" for part, n in lengths.items())
        raise ValueError(f"its lists have several lengths: {said}")
    count = next(iter(lengths.values()), 1)
    return {
        "value" if part in MEASURES else part: [
            _checked(part, each, layout.columns[part])
            for each in (value if isinstance(value, list) else [value] * count)
        ]
        for part, value in values.items()
    }


def _value(row: Mapping[str, Any], name: str) -> Any:
    if name in row or "." not in name:
        return row.get(name)
    top, _, field = name.partition(".")
    inner = row.get(top)
    if isinstance(inner, list):
        return [each.get(field) if isinstance(each, dict) else None for each in inner]
    return inner.get(field) if isinstance(inner, dict) else None


def _checked(part: Part, value: Any, name: str) -> Any:
    """A value as its column holds it. Raises `ValueError`."""
    is_integer = type(value) is int and -_MOST_INT <= value < _MOST_INT
    if value is None:
        return None
    if part in _TEXTS and (is_integer or isinstance(value, str)):
        return str(value)
    if part in _INTEGERS and is_integer:
        return value
    if part not in (*_TEXTS, *_INTEGERS) and (is_integer or isinstance(value, float)):
        return float(value)
    wanted = (
        "text or an integer"
        if part in _TEXTS
        else "an integer"
        if part in _INTEGERS
        else "a number"
    )
    raise ValueError(f"its {name} {value!r:.60} is not {wanted}")
