"""Checkpoints: what the footers of a table's parts say, in one object.

Without one, a process that starts reads the end of every part. A checkpoint is a copy of what it
would find, and of nothing else: an entry counts only for a part that a listing shows with the same
name, size and etag. So it may be old, two compactors may each write one, and without any a table is
read as always. It is also a memory: it names runs that somebody else deleted.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from stampede.errors import Damaged
from stampede.store.objects.object_store import ObjectInfo
from stampede.store.offsets.coverage import Coverage
from stampede.store.parquet.checksums import PACKED, PARQUET_ERRORS, open_file, read_file, write
from stampede.store.runs.bloom_filters import Filter
from stampede.store.runs.footer import check_keys
from stampede.store.runs.index_sections import Sections
from stampede.store.runs.packed_coverage import PackedCoverage
from stampede.store.runs.run import RunInfo, live
from stampede.store.runs.run_name import RunName, digest
from stampede.store.runs.schema import TableSpec

CHECKPOINTS = "checkpoints/"
_KEY = re.compile(rf"{CHECKPOINTS}(?P<table>\w+)/\d{{10}}-[0-9a-f]{{32}}\.parquet")
_BUCKET = re.compile(rf"{CHECKPOINTS}\w+/bucket-(?P<digest>[0-9a-f]{{32}})")
_NAME = "stampede.checkpoint"


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
            *([pa.field("offsets", pa.binary())] if packed else []),
        ]
    )


def write_checkpoint(
    parts: Iterable[RunInfo], spec: TableSpec, number: int, bucket: str
) -> tuple[str, pa.Buffer]:
    """Key and bytes of a checkpoint of a bucket; that of the greatest number is the newest.

    All parts of a run have the same coverage: the first of them has it here, as the run has it, in
    `coverage` or as a block in `offsets`. Only live parts have their filter, since a backlog may
    have ten thousand others.
    """
    rows = []
    coverages: dict[str, Coverage] = {}
    parts = sorted(parts, key=lambda part: part.key)
    asked = {part.key for run in live(parts) for part in run}
    for part in parts:
        info, run = part.object, part.name.run
        coverage = None if run in coverages else part.coverage
        block = coverage if isinstance(coverage, PackedCoverage) else None
        rows.append(
            {
                "key": info.key,
                "size": info.size,
                "etag": info.etag,
                "modified": info.modified,
                "inputs": part.inputs,
                "coverage": coverage.to_json() if coverage is not None and not block else None,
                "rows": part.rows,
                "first": part.first,
                "last": part.last,
                "body_crc32": part.body_crc32,
                "filter": part.filter.data if part.filter and info.key in asked else None,
                "sections": part.sections.text if part.sections is not None else None,
                "offsets": block.data if block else None,
            }
        )
        coverages[run] = part.coverage
    # Within the bytes, so a copy under another number, or in another bucket, shows.
    name = {_NAME: json.dumps({"number": number, "bucket": bucket})}
    packed = any(isinstance(one, PackedCoverage) for one in coverages.values())
    made = pa.Table.from_pylist(rows, schema=columns(spec, packed))
    data = write(made, name | (PACKED if packed else {}), compression="zstd")
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
    parts: dict[str, RunInfo] = {}
    coverages: dict[str, Coverage] = {}
    try:
        for row in rows.to_pylist():
            name = RunName.parse(row["key"])
            if name is None:
                raise Damaged(f"{key} names {row['key']!r}, which is no part of a run")
            if (coverage := _coverage(row)) is not None:
                coverages[name.run] = coverage
            # Earlier checkpoints have neither: such a part is asked for every key.
            bits, sections = row.get("filter"), row.get("sections")
            part = RunInfo(
                name,
                ObjectInfo(row["key"], row["size"], row["etag"], row["modified"]),
                tuple(row["inputs"]),
                coverages[name.run],
                row["rows"],
                row["first"],
                row["last"],
                row["body_crc32"],
                Filter(bits) if bits else None,
                Sections(sections, row["last"], spec) if sections else None,
            )
            check_keys(part, spec)
            parts[row["key"]] = part
    except (*PARQUET_ERRORS, AttributeError, RecursionError) as error:
        raise Damaged(f"{key} does not have the columns of a checkpoint: {error}") from None
    return Checkpoint(key, parts, bucket)


def _coverage(row: Mapping[str, Any]) -> Coverage | None:
    """The offsets in a row; None if an earlier row of the same run has them."""
    if row["coverage"] is not None:
        return Coverage.from_json(row["coverage"])
    block = row.get("offsets")
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
