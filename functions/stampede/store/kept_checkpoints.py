"""The checkpoints of a table: which is the newest, when another is due, and which may go."""

from collections.abc import Iterable, Sequence
from datetime import timedelta

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.logs import get_logger
from stampede.store.checkpoint import (
    CHECKPOINTS,
    Checkpoint,
    is_checkpoint,
    number_of,
    parse_checkpoint,
    write_checkpoint,
)
from stampede.store.objects import ObjectInfo, Objects, find, read_twice
from stampede.store.runs import RunInfo
from stampede.store.schema import ALL_TABLES, TableSpec

MOST_NEW_PARTS = 64
"""A new checkpoint is due when a start would read so many footers besides the last one."""
MOST_NUMBER = 9_000_000_000
"""A key with a greater number is foreign: so many checkpoints are never written."""
KEPT = 2  # checkpoints of a table: a reader may be about to read the last but one

log = get_logger()


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
    if sum(not same_object(part, named.get(part.key)) for part in parts) >= MOST_NEW_PARTS:
        written = put_checkpoint(objects, spec, parts)
    sound = [info.key for info in listed if info.key not in damaged]
    before = objects.now() - grace
    for key in sorted({*damaged, *sound[: (1 if written else 0) - KEPT]} - {written or ""}):
        info = find(objects, key)  # it may have been written again since it was listed
        if info and info.modified <= before:
            objects.delete(key)
    return written


def put_checkpoint(objects: Objects, spec: TableSpec, parts: Iterable[RunInfo]) -> str:
    """Store a checkpoint that is newer than all others, and read it back. Returns its key.

    Raises `StoreDown`.
    """
    # Newer than one that cannot be read now, too: later it may be readable again.
    numbers = (number_of(info.key) for info in listed_checkpoints(objects, spec))
    last = max((number for number in numbers if number < MOST_NUMBER), default=0)
    key, data = write_checkpoint(parts, spec, last + 1)
    objects.put(key, memoryview(data))
    try:
        stored = objects.get(key)
    except NotFound:
        stored = b""
    if stored != data:
        raise StoreDown(f"{key} does not read back as it was written")
    return key


def delete_damaged(objects: Objects, key: str) -> None:
    """Delete a checkpoint that is damaged: nothing needs it. Raises `StoreDown`."""
    spec = ALL_TABLES.get(key.removeprefix(CHECKPOINTS).partition("/")[0])
    if spec is None or not is_checkpoint(key):
        return
    try:
        read_checkpoint(objects, key, spec)
    except NotFound:
        return
    except Damaged:
        objects.delete(key)


def listed_checkpoints(objects: Objects, spec: TableSpec) -> list[ObjectInfo]:
    """The checkpoints of a table, the oldest first. Raises `StoreDown`."""
    listed = objects.list(f"{CHECKPOINTS}{spec.name}/")
    return [info for info in listed if is_checkpoint(info.key)]


def _read_newest(
    objects: Objects,
    spec: TableSpec,
    listed: Sequence[ObjectInfo],
    known: Checkpoint | None = None,
) -> tuple[Checkpoint | None, list[str]]:
    """The newest checkpoint that can be read, and the keys of damaged ones that are newer."""
    damaged: list[str] = []
    for key in (info.key for info in reversed(listed)):
        if known and known.key == key:
            return known, damaged
        try:
            return read_checkpoint(objects, key, spec), damaged
        except NotFound:
            continue
        except StoreDown as error:  # at this object alone: otherwise the listing fails too
            log.warning("a checkpoint cannot be read", key=key, why=error.message)
        except Damaged as error:
            log.error("damaged", key=key, why=error.message)
            damaged.append(key)
    return None, damaged


def read_checkpoint(objects: Objects, key: str, spec: TableSpec) -> Checkpoint:
    """A checkpoint in the store. Raises `NotFound`, `StoreDown`, and `Damaged` if it is twice."""
    return read_twice(lambda: parse_checkpoint(key, objects.get(key), spec), Damaged)


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
