"""The fields of a sample: their types and documentation by its schema, their values."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from stampede.alerts import schemas
from stampede.alerts.schemas import Schema
from stampede.images import fits
from stampede.images.hdu import BadImage
from stampede.runtime.decompression import is_gzip
from stampede.samples.sample import Sample

LONGEST_VALUE = 32
IMAGES = {b"\x89PNG\r\n": "PNG", b"\xff\xd8\xff": "JPEG", b"GIF8": "GIF"}


class Field(NamedTuple):
    """A field of a sample's record.

    Attributes
    ----------
    path
        ``a``, ``a.b`` of a record within, ``a[].b`` of the records in an array.
    kind
        Its type, in words.
    doc
        What the schema says of it.
    value
        Its value; of the fields of an array's records that of the first one.
    """

    path: str
    kind: str
    doc: str
    value: Any


def fields_of(sample: Sample) -> list[Field]:
    """The fields of a sample in the order of its schema, the outer before the inner."""
    walk = _Walk(sample.whole_schema)
    return list(walk.record(sample.schema, sample.record, ""))


def twice(sample: Sample) -> list[str]:
    """The fields that the schema has more than once, which Avro forbids."""
    return sorted(_Walk(sample.whole_schema).repeated(sample.schema, ""))


def shown(value: Any) -> str:
    """A value in a few words, without a character that a terminal would obey."""
    if isinstance(value, bytes):
        return described(value)
    if isinstance(value, list | dict):
        one, many = ("entry", "entries") if isinstance(value, list) else ("field", "fields")
        return f"{len(value):,} {one if len(value) == 1 else many}"
    return printable("" if value is None else repr(value), LONGEST_VALUE)


def described(data: bytes) -> str:
    """What bytes are: an image of some size, or their number and beginning."""
    size = f"{len(data):,} bytes"
    packed = "gzip, " if is_gzip(data) else ""
    for magic, name in IMAGES.items():
        if data.startswith(magic):
            return f"{name}, {size}"
    try:
        rows, columns = fits.first_image(data)[0].shape
    except BadImage:
        return f"{packed}{size}" + (f", 0x{data[:4].hex()}…" if data and not packed else "")
    return f"{packed}FITS {columns} x {rows}, {size}"


def is_image(data: Any) -> bool:
    """Whether a value is a FITS image that can be shown."""
    if not isinstance(data, bytes):
        return False
    try:
        fits.first_image(data)
    except BadImage:
        return False
    return True


def printable(text: str, most: int) -> str:
    """A stranger's text on one line of bounded length, without control characters."""
    clean = "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
    return clean if len(clean) <= most else f"{clean[: most - 1]}…"


class _Walk:
    """Walks a schema that `schemas.simplify` has taken: its size and depth are bounded."""

    def __init__(self, schema: Schema) -> None:
        self._types: dict[str, dict[str, Any]] = {}
        self._define(schema, "")

    def _define(self, kind: Schema, namespace: str) -> None:
        if isinstance(kind, list):
            for branch in kind:
                self._define(branch, namespace)
        if not isinstance(kind, dict):
            return
        if isinstance(kind.get("name"), str):
            full = schemas.full_name({"namespace": namespace, **kind})
            for name in (full, full.rpartition(".")[2]):
                self._types.setdefault(name, kind)
            namespace = full.rpartition(".")[0]
        for part in ("type", "items", "values"):
            self._define(kind.get(part), namespace)
        for field in kind.get("fields", ()):
            self._define(field["type"], namespace)

    def record(self, record: dict[str, Any], value: Any, prefix: str) -> Iterator[Field]:
        """The fields of a record, and of those within it."""
        names = schemas.distinct_names([field["name"] for field in record["fields"]])
        for name, field in zip(names, record["fields"], strict=True):
            inner = value.get(name) if isinstance(value, dict) else None
            doc = field["doc"] if isinstance(field.get("doc"), str) else ""
            yield Field(prefix + name, self.named(field["type"]), doc, inner)
            nested, is_array = self.nested(field["type"])
            if nested and is_array:
                first = inner[0] if isinstance(inner, list) and inner else None
                yield from self.record(nested, first, f"{prefix}{name}[].")
            elif nested:
                yield from self.record(nested, inner, f"{prefix}{name}.")

    def repeated(self, record: dict[str, Any], prefix: str) -> set[str]:
        """The paths of fields that a record has more than once, and those within it."""
        counts = Counter(field["name"] for field in record["fields"])
        found = {prefix + name for name, count in counts.items() if count > 1}
        for field in record["fields"]:
            nested, is_array = self.nested(field["type"])
            if nested:
                found |= self.repeated(nested, f"{prefix}{field['name']}{'[]' * is_array}.")
        return found

    def nested(self, kind: Schema) -> tuple[dict[str, Any] | None, bool]:
        """The record type in a type, and whether it is in an array."""
        for branch in kind if isinstance(kind, list) else [kind]:
            found = self._types.get(branch) if isinstance(branch, str) else branch
            if not isinstance(found, dict):
                continue
            if found["type"] in ("record", "error"):
                return found, False
            if found["type"] == "array":
                return self.nested(found["items"])[0], True
            if isinstance(found["type"], dict | list):
                return self.nested(found["type"])
        return None, False

    def named(self, kind: Schema) -> str:
        """A type in words."""
        if isinstance(kind, list):
            return " or ".join(self.named(branch) for branch in kind)
        if isinstance(kind, str):
            return self._types[kind]["type"] if kind in self._types else printable(kind, 40)
        if kind["type"] == "array":
            return f"array of {self.named(kind['items'])}"
        if kind["type"] == "map":
            return f"map of {self.named(kind['values'])}"
        if not isinstance(kind["type"], str):
            return self.named(kind["type"])
        logical = kind.get("logicalType")
        return kind["type"] + (f" ({printable(str(logical), 40)})" if logical else "")
