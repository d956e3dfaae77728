"""What files of alerts hold, as text and as JSON."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from stampede.errors import StampedeError
from stampede.ingest import files
from stampede.samples import fields as of_fields
from stampede.samples import sample as samples
from stampede.samples.fields import Field, fields_of, is_image, printable, shown
from stampede.samples.sample import Sample

LONGEST_DOC = 60


class Group(NamedTuple):
    """Alerts of one schema in one file, described by the first of them.

    Attributes
    ----------
    refusal
        Why the functions would not store the first one; empty if they would.
    cutouts, detections
        Images and points of light curves that they would store of it.
    """

    file: str
    first: Sample
    alerts: int
    refusal: str
    cutouts: int
    detections: int


class Unreadable(NamedTuple):
    """What is in a file and cannot be read, and why."""

    name: str
    reason: str


def inspect(paths: Iterable[Path], most: int) -> Iterator[Group | Unreadable]:
    """What each file holds: its alerts by schema, and what in it cannot be read.

    Parameters
    ----------
    most
        Alerts of a file that are read.

    Raises
    ------
    SetupError
        A path cannot be read, or there is no file of alerts.
    """
    for path in files.find(paths):
        firsts: dict[str, Sample] = {}
        counts: dict[str, int] = {}
        for found in read([path], most):
            if isinstance(found, Unreadable):
                yield found
                continue
            key = f"{found.framing} {found.whole_schema}"
            firsts.setdefault(key, found)
            counts[key] = counts.get(key, 0) + 1
        for key, first in firsts.items():
            yield _group(str(path), first, counts[key])


def read(paths: Iterable[Path], most: int) -> Iterator[Sample | Unreadable]:
    """The first alerts of each file, as `inspect`."""
    for path in files.find(paths):
        for alert in islice(files.read([path], samples.MOST_BYTES), most):
            try:
                yield samples.read(alert)
            except StampedeError as error:
                yield Unreadable(alert.name, error.message)


def as_dict(group: Group) -> dict[str, Any]:
    """A group as JSON has it."""
    sample, fields = group.first, fields_of(group.first)
    return {
        "file": group.file,
        "first": sample.name,
        "alerts": group.alerts,
        "framing": sample.framing,
        "schema": {
            "name": sample.schema_name,
            "version": str(_version(sample)),
            "doc": str(sample.schema.get("doc") or ""),
            "twice": of_fields.twice(sample),
        },
        "survey": sample.survey or None,
        "refusal": group.refusal or None,
        "cutouts": group.cutouts,
        "detections": group.detections,
        "fields": [
            {"path": f.path, "type": f.kind, "doc": f.doc, "value": _json_value(f.value)}
            for f in fields
        ],
        "images": {f.path: shown(f.value) for f in fields if is_image(f.value)},
        "histories": {f.path: len(f.value) for f in fields if isinstance(f.value, list)},
    }


def as_text(group: Group) -> str:
    """A group for people: a line for each thing, then one for each field."""
    sample, fields = group.first, fields_of(group.first)
    version = _version(sample)
    lines = [
        group.file,
        f"  alerts    {group.alerts:,}; below is the first: {sample.name}",
        f"  framing   {sample.framing}",
        f"  schema    {printable(sample.schema_name, 80) or 'without a name'}"
        + (f", version {printable(str(version), 40)}" if version else ""),
        f"  survey    {sample.survey or 'none that Stampede knows'}",
        "  stored    "
        + (
            f"no: {group.refusal}"
            if group.refusal
            else f"{group.detections:,} points of light curves, {group.cutouts} cutouts"
        ),
    ]
    lines += [
        f"  image     {field.path}: {shown(field.value)}"
        for field in fields
        if is_image(field.value)
    ]
    lines += [
        f"  history   {field.path}: {shown(field.value)}"
        for field in fields
        if isinstance(field.value, list)
    ]
    lines += [
        f"  warning   the schema has the field {printable(name, 80)} twice"
        for name in of_fields.twice(sample)
    ]
    return "\n".join([*lines, "", *_tree(fields)])


def _group(file: str, first: Sample, alerts: int) -> Group:
    if first.refusal:
        return Group(file, first, alerts, first.refusal, 0, 0)
    verdict = samples.judge([first.message])
    return Group(file, first, alerts, verdict.refusals[0], verdict.cutouts, verdict.detections)


def _version(sample: Sample) -> Any:
    """The schema's version: an attribute of the schema, or ZTF's and others' field of it."""
    return sample.schema.get("version") or sample.record.get("schemavsn") or ""


def _tree(fields: list[Field]) -> Iterator[str]:
    rows = [("field", "type", "value", "documentation")]
    rows += [
        (
            "  " * field.path.count(".") + field.path.rpartition(".")[2],
            printable(field.kind, 40),
            shown(field.value),
            printable(field.doc, LONGEST_DOC),
        )
        for field in fields
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True))
        yield f"  {'  '.join(cells)}  {row[3]}".rstrip()


def _json_value(value: Any) -> Any:
    """A value as JSON has it: of arrays, records and bytes a few words, of ids all digits."""
    return value if isinstance(value, bool | int | str | None) else shown(value)
