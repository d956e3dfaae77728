"""Checkpoints: what the footers of a table's parts say, in one object.

Without one, a process that starts reads the end of every part. A checkpoint is a copy of what it
would find, and of nothing else: an entry counts only for a part that a listing shows with the same
name, size and etag. So it may be old, two compactors may each write one, and without any a table is
read as always. It is also a memory: it names runs that somebody else deleted.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC
from itertools import groupby, repeat
from typing import Any, NamedTuple

import pyarrow as pa

from stampede.errors import Damaged
from stampede.store.objects.object_store import ObjectInfo
from stampede.store.offsets.coverage import Coverage
from stampede.store.parquet.checksums import (
    PACKED,
    PARQUET_ERRORS,
    STORED,
    open_file,
    read_file,
    write,
)
from stampede.store.runs.bloom_filters import Filter
from stampede.store.runs.footer import check_ends
from stampede.store.runs.index_sections import Sections
from stampede.store.runs.merge import one_array
from stampede.store.runs.packed_coverage import Block, PackedCoverage, StoredCoverage
from stampede.store.runs.run import RunInfo, live
from stampede.store.runs.run_name import RunName, digest
from stampede.store.runs.schema import TableSpec
from stampede.store.runs.section_files import CHECKPOINTS as CHECKPOINTS
from stampede.store.runs.section_files import is_section_file

_KEY = re.compile(rf"{CHECKPOINTS}(?P<table>\w+)/\d{{10}}-[0-9a-f]{{32}}\.parquet")
_BUCKET = re.compile(rf"{CHECKPOINTS}\w+/bucket-(?P<digest>[0-9a-f]{{32}})")
_NAME = "stampede.checkpoint"
_VALUES = (
    *("key", "size", "etag", "coverage", "rows", "first", "last", "body_crc32"),
    *("filter", "sections", "sections_in", "offsets_in", "offsets"),
)
"""Columns of which each value is made a Python object."""


class Checkpoint(NamedTuple):
    """A checkpoint in the store: the parts that it names, by key, and the bucket it is of."""

    key: str
    parts: Mapping[str, RunInfo]
    bucket: str


def is_checkpoint(key: str) -> bool:
    """Whether a key is that of a checkpoint."""
    return _KEY.fullmatch(key) is not None


def bucket_of(key: str) -> str | None:
    """The bucket that the checkpoints of a table name; None if the key is of another object.

    It is the digest in the key of an object whose bytes no other bucket has.
    """
    found = _BUCKET.fullmatch(key)
    return found["digest"] if found else None


def write_bucket(spec: TableSpec, content: bytes) -> str:
    """The key of the object that holds these bytes."""
    return f"{CHECKPOINTS}{spec.name}/bucket-{digest(content)}"


def number_of(key: str) -> int:
    """The number in the key of a checkpoint: the greatest is that of the newest."""
    return int(key.rpartition("/")[2].partition("-")[0])


def columns(spec: TableSpec, packed: bool = False) -> pa.Schema:
    """The columns of a checkpoint. `first` and `last` have the type of the table's leading key.

    `packed` is whether a run has its offsets in a block: then that is a column too.
    """
    leading = spec.schema.field(spec.leading).type
    return pa.schema(
        [
            pa.field("key", pa.string(), False),
            pa.field("size", pa.int64(), False),
            pa.field("etag", pa.string(), False),
            pa.field("modified", pa.timestamp("us", "UTC"), False),
            pa.field("inputs", pa.list_(pa.string()), False),
            pa.field("coverage", pa.string()),
            pa.field("rows", pa.int64(), False),
            pa.field("first", leading),
            pa.field("last", leading),
            pa.field("body_crc32", pa.string()),
            pa.field("filter", pa.binary()),
            pa.field("sections", pa.string()),
            pa.field("sections_in", pa.string()),
            pa.field("offsets_in", pa.string()),
            *([pa.field("offsets", pa.binary())] if packed else []),
        ]
    )


def write_checkpoint(
    parts: Iterable[RunInfo], spec: TableSpec, number: int, bucket: str
) -> tuple[str, pa.Buffer]:
    """Key and bytes of a checkpoint of a bucket; that of the greatest number is the newest.

    All parts of a run have the same coverage: the first of them has it here, as the run has it, in
    `coverage` or as a block in `offsets`, or its block's length and digest in `offsets_in`. Only
    live parts have their filter, since a backlog may have ten thousand others.
    """
    parts = sorted(parts, key=lambda part: part.key)
    asked = {part.key for run in live(parts) for part in run}
    made: dict[str, list[Any]] = {
        "key": [part.key for part in parts],
        "size": [part.object.size for part in parts],
        "etag": [part.object.etag for part in parts],
        "modified": [part.object.modified for part in parts],
        "inputs": [part.inputs for part in parts],
        "rows": [part.rows for part in parts],
        "first": [part.first for part in parts],
        "last": [part.last for part in parts],
        "body_crc32": [part.body_crc32 for part in parts],
        "filter": [
            part.filter.data if part.filter and part.key in asked else None for part in parts
        ],
        "sections": [part.sections.text if part.sections is not None else None for part in parts],
        "sections_in": [part.sections_in for part in parts],
        **_offsets(parts),
    }
    stored, packed = any(made["offsets_in"]), any(made["offsets"])
    schema = columns(spec, packed)
    # Within the bytes, so a copy under another number, or in another bucket, shows.
    name = {_NAME: json.dumps({"number": number, "bucket": bucket})}
    name |= STORED if stored else PACKED if packed else {}
    rows = pa.table({column: made[column] for column in schema.names}, schema)
    data = write(rows, name, compression="zstd")
    return f"{CHECKPOINTS}{spec.name}/{number:010}-{digest(data)}.parquet", data


def parse_checkpoint(
    key: str, data: bytes, spec: TableSpec, buckets: Collection[str] | None = None
) -> Checkpoint:
    """The checkpoint in an object, of any bucket or of one of `buckets`. Raises `Damaged`."""
    named = _KEY.fullmatch(key)
    if named is None or named["table"] != spec.name:
        raise Damaged(f"{key} is not the key of a checkpoint of {spec.name}")
    if not key.endswith(f"-{digest(data)}.parquet"):
        raise Damaged(f"{key} is damaged: its bytes do not have the digest in its name")
    file = open_file(key, data)
    bucket = _checked_name(key, file.metadata.metadata, buckets)
    rows = read_file(key, file)
    try:
        return Checkpoint(key, {part.key: part for part in _parts(rows, spec)}, bucket)
    except (*PARQUET_ERRORS, AttributeError, RecursionError) as error:
        raise Damaged(f"{key} does not have the columns of a checkpoint: {error}") from None


def _offsets(parts: Sequence[RunInfo]) -> dict[str, list[Any]]:
    """The columns of the offsets of these parts: what the first part of each run has."""
    made: dict[str, list[Any]] = {
        name: [None] * len(parts) for name in ("coverage", "offsets_in", "offsets")
    }
    seen: set[str] = set()
    for place, part in enumerate(parts):
        run, held = part.name.run, part.coverage
        if run in seen:
            continue
        seen.add(run)
        if isinstance(held, StoredCoverage):
            made["offsets_in"][place] = held.block.to_json()
        elif isinstance(held, PackedCoverage):
            made["offsets"][place] = held.data
        else:
            made["coverage"][place] = held.to_json()
    return made


def _parts(rows: pa.Table, spec: TableSpec) -> Iterator[RunInfo]:
    """The parts in the rows of a checkpoint. Raises `Damaged`, and one of `PARQUET_ERRORS`.

    Column by column: a dictionary of each row would take as long as all else in a start.
    """
    _check_types(rows.schema, spec)
    # Earlier checkpoints lack the last columns: such a part is asked for every key.
    values: dict[str, list[Any]] = {
        name: rows[name].to_pylist() if name in rows.schema.names else [None] * rows.num_rows
        for name in _VALUES
    }
    names = [_name(key, spec) for key in values["key"]]
    modified = [one.replace(tzinfo=UTC) for one in rows["modified"].to_numpy().tolist()]
    files = {one: _section_file(one, spec) for one in set(values["sections_in"])}
    coverages: dict[str, Coverage] = {}
    ends = zip(*(values[name] for name in ("rows", "first", "last", "body_crc32")), strict=True)
    said = zip(
        names,
        map(ObjectInfo, values["key"], values["size"], values["etag"], modified),
        _inputs(rows, names),
        map(_coverage, values["coverage"], values["offsets"], values["offsets_in"]),
        ends,
        *(values[name] for name in ("filter", "sections", "sections_in")),
        strict=True,
    )
    for name, info, inputs, held, (count, first, last, body), bits, text, file in said:
        if held is not None:
            coverages[name.run] = held
        part = RunInfo(
            name,
            info,
            inputs,
            coverages[name.run],
            count,
            first,
            last,
            body,
            Filter(bits) if bits else None,
            Sections(text, last, spec) if text else None,
            files[file],
        )
        check_ends(part)
        yield part


def _check_types(schema: pa.Schema, spec: TableSpec) -> None:
    expected = columns(spec, packed=True)
    for field in schema:
        if field.name in expected.names and field.type != expected.field(field.name).type:
            raise ValueError(f"{field.name} has type {field.type}")


def _name(key: str, spec: TableSpec) -> RunName:
    name = RunName.parse(key)
    if name is None or name.key(spec.name) != key:
        raise ValueError(f"{key!r} is no part of a run")
    return name


def _inputs(rows: pa.Table, names: Sequence[RunName]) -> Iterator[tuple[str, ...]]:
    """The inputs of each part: those of the part before it, if that is of the same run."""
    inputs, begin = one_array(rows["inputs"]), 0
    for _, run in groupby(names, key=lambda name: name.run):
        count = sum(1 for _ in run)
        of_run = inputs.slice(begin, count)
        begin += count
        if of_run[1:].equals(of_run[:-1]):
            yield from repeat(tuple(of_run[0].as_py()), count)
        else:
            yield from map(tuple, of_run.to_pylist())


def _section_file(key: str | None, spec: TableSpec) -> str | None:
    """The key of a section file of a table. Raises `ValueError` if it is another."""
    if key and not (is_section_file(key) and key.startswith(f"{CHECKPOINTS}{spec.name}/")):
        raise ValueError(f"{key!r} is no section file")
    return key


def _coverage(text: str | None, block: bytes | None, stored: str | None) -> Coverage | None:
    """The offsets in a row; None if an earlier row of the same run has them."""
    if text is not None:
        return Coverage.from_json(text)
    if stored is not None:
        named = Block.parse(stored)
        return StoredCoverage(named) if named else None
    return None if block is None else PackedCoverage(block)


def _checked_name(key: str, pairs: Mapping[bytes, bytes], buckets: Collection[str] | None) -> str:
    """The bucket of a checkpoint. Raises `Damaged` if it has another number, or is of another."""
    try:
        name: dict[str, Any] = json.loads(pairs[_NAME.encode()])
        number, bucket = name["number"], name["bucket"]
    except (*PARQUET_ERRORS, RecursionError):
        raise Damaged(f"{key} does not say which checkpoint it is") from None
    if number != number_of(key):
        raise Damaged(f"{key} holds the checkpoint of number {number}")
    if buckets is not None and bucket not in buckets:
        raise Damaged(f"{key} is a checkpoint of another bucket")
    return str(bucket)
