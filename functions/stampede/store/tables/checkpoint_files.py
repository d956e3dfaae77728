"""The checkpoints of a table: which is the newest, when another is due, and which may go."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.objects.object_store import ObjectInfo, Objects, find, read_twice
from stampede.store.runs.run import RunInfo
from stampede.store.runs.schema import ALL_TABLES, TableSpec
from stampede.store.tables.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    bucket_of,
    is_checkpoint,
    number_of,
    parse_checkpoint,
    write_bucket,
    write_checkpoint,
)
from stampede.telemetry.logs import get_logger

MOST_NEW_PARTS = 64
"""A new checkpoint is due when a start would read so many footers besides the last one. In a small
table it is due when half of the parts have changed: a table that a checkpoint names is known not to
be empty."""
KEPT = 2  # checkpoints of a table: a reader may be about to read the last but one

log = get_logger()


class Listed(NamedTuple):
    """The checkpoints of a table, the oldest first, and the buckets whose checkpoints count.

    There may be two such buckets, because two processes may each write the first checkpoint.
    """

    checkpoints: list[ObjectInfo]
    buckets: frozenset[str]


def newest_checkpoint(objects: Objects, spec: TableSpec) -> Checkpoint | None:
    """The newest checkpoint of a table that can be read. Raises `StoreDown`."""
    return _read_newest(objects, spec, listed_checkpoints(objects, spec))[0]


def keep_checkpoint(
    objects: Objects,
    spec: TableSpec,
    parts: Sequence[RunInfo],
    grace: timedelta,
    known: Checkpoint | None = None,
) -> str | None:
    """Write a checkpoint of these parts if it is due, and delete old ones and damaged ones.

    Returns its key. Raises `StoreDown`.

    Parameters
    ----------
    grace
        The age at which a checkpoint may be deleted.
    known
        One that was read before: if it is the newest still, it is not read again.
    """
    listed = listed_checkpoints(objects, spec)
    last, damaged = _read_newest(objects, spec, listed, known)
    named = last.parts if last else {}
    written = None
    if _is_due(parts, named):
        written = put_checkpoint(objects, spec, parts, last)
    sound = [info.key for info in listed.checkpoints if info.key not in damaged]
    before = objects.now() - grace
    for key in sorted({*damaged, *sound[: (1 if written else 0) - KEPT]} - {written or ""}):
        info = find(objects, key)  # it may have been written again since it was listed
        if info and info.modified <= before:
            objects.delete(key)
    return written


def _is_due(parts: Sequence[RunInfo], named: Mapping[str, RunInfo]) -> bool:
    """Whether the parts of a table differ by enough from those that a checkpoint names."""
    new = sum(not same_object(part, named.get(part.key)) for part in parts)
    gone = len(named.keys() - {part.key for part in parts})
    return new >= MOST_NEW_PARTS or 0 < len(parts) <= 2 * (new + gone)


def put_checkpoint(
    objects: Objects, spec: TableSpec, parts: Iterable[RunInfo], last: Checkpoint | None = None
) -> str:
    """Store a checkpoint that is newer than all others, and read it back. Returns its key.

    Raises `StoreDown`.

    Parameters
    ----------
    last
        The newest checkpoint that can be read, if that is known.
    """
    listed = listed_checkpoints(objects, spec)
    last = last or _read_newest(objects, spec, listed)[0]
    number = number_of(last.key) if last else 0
    # Newer than those that cannot be read now, too: later they may be readable again. They are
    # counted, because a foreign one may have any number.
    number += sum(number_of(info.key) > number for info in listed.checkpoints)
    parts = list(parts)
    bucket = min(listed.buckets) if listed.buckets else _new_bucket(objects, spec, parts)
    key, data = write_checkpoint(parts, spec, number + 1, bucket)
    objects.put(key, memoryview(data))
    try:
        stored = objects.get(key)
    except NotFound:
        stored = b""
    if stored != data:
        raise StoreDown(f"{key} does not read back as it was written")
    return key


def _new_bucket(objects: Objects, spec: TableSpec, parts: Iterable[RunInfo]) -> str:
    """Write what tells the checkpoints of this bucket from those of others.

    Its bytes are the time and the first parts: no other bucket has the same at the same second.
    """
    lines = [objects.now().isoformat(), *(f"{part.key} {part.object.etag}" for part in parts)]
    content = "\n".join(lines).encode()
    key = write_bucket(spec, content)
    objects.put(key, content)
    return bucket_of(key) or ""


def delete_damaged(objects: Objects, key: str) -> None:
    """Delete a checkpoint that is damaged: nothing needs it. Raises `StoreDown`."""
    spec = ALL_TABLES.get(key.removeprefix(CHECKPOINTS).partition("/")[0])
    if spec is None or not is_checkpoint(key):
        return
    try:
        read_checkpoint(objects, key, spec, listed_checkpoints(objects, spec).buckets)
    except NotFound:
        return
    except Damaged:
        objects.delete(key)


def listed_checkpoints(objects: Objects, spec: TableSpec) -> Listed:
    """The checkpoints of a table. Raises `StoreDown`."""
    listed = list(objects.list(f"{CHECKPOINTS}{spec.name}/"))
    buckets = frozenset(bucket for info in listed if (bucket := bucket_of(info.key)))
    return Listed([info for info in listed if is_checkpoint(info.key)], buckets)


def _read_newest(
    objects: Objects,
    spec: TableSpec,
    listed: Listed,
    known: Checkpoint | None = None,
) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that can be read, and the keys of damaged ones that are newer."""
    damaged: list[str] = []
    for key in (info.key for info in reversed(listed.checkpoints)):
        if known and known.key == key:
            return known, damaged
        try:
            return read_checkpoint(objects, key, spec, listed.buckets), damaged
        except NotFound:
            continue
        except StoreDown as error:  # at this object alone: otherwise the listing fails too
            log.warning("a checkpoint cannot be read", key=key, why=error.message)
        except Damaged as error:
            log.error("damaged", key=key, why=error.message)
            damaged.append(key)
    return None, damaged


def read_checkpoint(
    objects: Objects, key: str, spec: TableSpec, buckets: Collection[str]
) -> Checkpoint:
    """A checkpoint in the store. Raises `NotFound`, `StoreDown`, and `Damaged` if it is twice.

    One that is of none of `buckets` is damaged, too.
    """
    return read_twice(lambda: parse_checkpoint(key, objects.get(key), spec, buckets), Damaged)


def same_object(part: RunInfo, other: RunInfo | None) -> bool:
    """Whether both are the same object with the same bytes."""
    return other is not None and part.object[:3] == other.object[:3]


def same_entry(part: RunInfo, other: RunInfo | None) -> bool:
    """Whether a checkpoint's entry says what a part's footer says. It need not have the filter."""
    return (
        other is not None
        and same_object(part, other)
        and part.coverage == other.coverage
        and _said(part) == _said(other)
        and (other.filter is None or _bits(part) == _bits(other))
    )


def _said(part: RunInfo) -> tuple[object, ...]:
    sections = part.sections.text if part.sections is not None else None
    return part.inputs, part.rows, part.first, part.last, part.body_crc32, sections


def _bits(part: RunInfo) -> bytes | None:
    return bytes(part.filter.data) if part.filter else None
