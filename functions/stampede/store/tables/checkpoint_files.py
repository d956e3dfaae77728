"""The checkpoints of a table: which is the newest, when another is due, and which may go."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from itertools import groupby
from typing import NamedTuple

import pyarrow as pa

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.objects.object_store import ObjectInfo, Objects, find, read_twice
from stampede.store.runs.packed_coverage import (
    PackedCoverage,
    StoredCoverage,
    UnreadableOffsets,
)
from stampede.store.runs.reader import RunReader
from stampede.store.runs.run import RunInfo
from stampede.store.runs.schema import ALL_TABLES, TableSpec
from stampede.store.runs.section_files import (
    SectionFiles,
    is_plain,
    is_section_file,
    parse_section_file,
    write_section_file,
)
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
from stampede.store.tables.offset_files import (
    check_offset_file,
    is_offset_file,
    load_when_asked,
    offset_file_of,
)
from stampede.telemetry.logs import get_logger

MOST_NEW_PARTS = 64
"""A new checkpoint is due when a start would read so many footers besides the last one. In a small
table it is due when half of the parts have changed: a table that a checkpoint names is known not to
be empty."""
LARGE = 16
"""Parts of a run from which on their sections are in section files."""
TOGETHER = 64
"""Consecutive parts of a run that share a section file: 30 KB, for 2,000 sections."""
_CACHE_BYTES = 16 << 20  # of section files a quarter
KEPT = 2  # checkpoints of a table: a reader may be about to read the last but one

log = get_logger()


class Listed(NamedTuple):
    """The checkpoints of a table, the oldest first, and the buckets whose checkpoints count.

    There may be two such buckets, because two processes may each write the first checkpoint.
    `files` are the section files and the offset files of the table, by key.
    """

    checkpoints: list[ObjectInfo]
    buckets: frozenset[str]
    files: Mapping[str, ObjectInfo]


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
        parts = _put_files(objects, spec, parts, listed)
        written = _put_checkpoint(objects, spec, parts, last, listed)
    sound = [info.key for info in listed.checkpoints if info.key not in damaged]
    before = objects.now() - grace
    old = {*damaged, *sound[: (1 if written else 0) - KEPT]}
    if last or written:  # a reader that needs one of them nevertheless reads a footer instead
        used = {key for part in [*parts, *named.values()] for key in files_of(part, spec)}
        old |= {
            key for key, info in listed.files.items() if key not in used and info.modified <= before
        }
    for key in sorted(old - {written or ""}):
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
    parts = _put_files(objects, spec, parts, listed)
    return _put_checkpoint(objects, spec, parts, last, listed)


def _put_checkpoint(
    objects: Objects,
    spec: TableSpec,
    parts: Sequence[RunInfo],
    last: Checkpoint | None,
    listed: Listed,
) -> str:
    number = number_of(last.key) if last else 0
    # Newer than those that cannot be read now, too: later they may be readable again. They are
    # counted, because a foreign one may have any number.
    number += sum(number_of(info.key) > number for info in listed.checkpoints)
    bucket = min(listed.buckets) if listed.buckets else _new_bucket(objects, spec, parts)
    key, data = write_checkpoint(parts, spec, number + 1, bucket)
    _put(objects, key, data)
    return key


def _put_files(
    objects: Objects, spec: TableSpec, parts: Iterable[RunInfo], listed: Listed
) -> list[RunInfo]:
    """The same parts, without what of large runs is in section files and offset files.

    A file that is there already is neither read nor written again.
    """
    return _put_offsets(objects, spec, _put_sections(objects, spec, parts, listed), listed)


def _put_offsets(
    objects: Objects, spec: TableSpec, parts: Iterable[RunInfo], listed: Listed
) -> list[RunInfo]:
    done: list[RunInfo] = []
    stored: dict[str, StoredCoverage | None] = {}
    for part in parts:
        key, held = offset_file_of(part, spec), part.coverage
        if key is None or not isinstance(held, PackedCoverage):
            done.append(part)
            continue
        if key not in stored:
            stored[key] = held if isinstance(held, StoredCoverage) else StoredCoverage(held.block)
            if key not in listed.files:
                try:
                    _put(objects, key, held.data)
                except UnreadableOffsets as error:
                    log.error("a checkpoint forgets a run", key=part.key, why=error.message)
                    stored[key] = None
        if found := stored[key]:
            done.append(part if found is held else replace(part, coverage=found))
    return done


def _put_sections(
    objects: Objects, spec: TableSpec, parts: Iterable[RunInfo], listed: Listed
) -> list[RunInfo]:
    reader = RunReader(objects, spec, _CACHE_BYTES)
    parts = sorted(parts, key=lambda part: (part.name.run, part.name.part))
    done: list[RunInfo] = []
    for _, run in groupby(parts, lambda part: (part.name.run, part.name.part // TOGETHER)):
        together = list(run)
        having = [part for part in together if part.sections or part.sections_in]
        files = {part.sections_in for part in having}
        stored = len(files) == 1 and files <= listed.files.keys()
        if together[0].name.parts < LARGE or stored or not having:
            done += together
            continue
        together = [_completed(reader, part) for part in together]
        if plain := [part for part in together if is_plain(part)]:
            key, data = write_section_file(plain, spec)
            if key not in listed.files:
                _put(objects, key, data)
            together = [
                replace(part, sections=None, sections_in=key) if part in plain else part
                for part in together
            ]
        done += together
    return done


def _completed(reader: RunReader, part: RunInfo) -> RunInfo:
    """A part with its sections; as it is if its section file and its footer cannot be read."""
    try:
        return reader.with_sections(part)
    except (NotFound, StoreDown, Damaged):
        return part


def _put(objects: Objects, key: str, data: pa.Buffer | bytes) -> None:
    """Store an object and read it back. Raises `StoreDown`."""
    objects.put(key, memoryview(data))
    try:
        stored = objects.get(key)
    except NotFound:
        stored = b""
    if stored != data:
        raise StoreDown(f"{key} does not read back as it was written")


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
    """Delete a checkpoint, or a file beside it, that is damaged: nothing needs it.

    Raises `StoreDown`.
    """
    spec = ALL_TABLES.get(key.removeprefix(CHECKPOINTS).partition("/")[0])
    try:
        if spec is not None and is_file_beside(key):
            read_twice(partial(_check_file, objects, key, spec), Damaged)
        elif spec is not None and is_checkpoint(key):
            read_checkpoint(objects, key, spec, listed_checkpoints(objects, spec).buckets)
    except NotFound:
        return
    except Damaged:
        objects.delete(key)


def is_file_beside(key: str) -> bool:
    """Whether a key is that of a section file or of an offset file."""
    return is_section_file(key) or is_offset_file(key)


def check_file_beside(key: str, data: bytes, spec: TableSpec) -> None:
    """Raise `Damaged` unless an object is the section file or offset file of that name."""
    if is_offset_file(key):
        check_offset_file(key, data)
    else:
        parse_section_file(key, data, spec).check()


def files_of(part: RunInfo, spec: TableSpec) -> set[str]:
    """The keys of the section file and of the offset file of a part."""
    return {key for key in (part.sections_in, offset_file_of(part, spec)) if key}


def _check_file(objects: Objects, key: str, spec: TableSpec) -> None:
    check_file_beside(key, objects.get(key), spec)


def listed_checkpoints(objects: Objects, spec: TableSpec) -> Listed:
    """The checkpoints of a table, and the files beside them. Raises `StoreDown`."""
    listed = list(objects.list(f"{CHECKPOINTS}{spec.name}/"))
    buckets = frozenset(bucket for info in listed if (bucket := bucket_of(info.key)))
    files = {info.key: info for info in listed if is_file_beside(info.key)}
    return Listed([info for info in listed if is_checkpoint(info.key)], buckets, files)


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
    found = read_twice(lambda: parse_checkpoint(key, objects.get(key), spec, buckets), Damaged)
    load_when_asked(objects, spec, found.parts.values())
    return found


def with_files(
    objects: Objects, spec: TableSpec, parts: Mapping[str, RunInfo]
) -> tuple[dict[str, RunInfo], dict[str, Damaged | NotFound | StoreDown]]:
    """The parts that a checkpoint names with the sections that it says they have.

    And why files beside it cannot be read, by their keys: their parts are left as they are.
    """
    faults: dict[str, Damaged | NotFound | StoreDown] = {}
    for key in sorted({key for part in parts.values() for key in files_of(part, spec)}):
        try:
            read_twice(partial(_check_file, objects, key, spec), Damaged)
        except (Damaged, NotFound, StoreDown) as error:
            faults[key] = error
    files, completed = SectionFiles(objects, spec, _CACHE_BYTES), dict(parts)
    for key, part in parts.items():
        if part.sections_in and part.sections_in not in faults:
            completed[key] = replace(part, sections=files.of(part), sections_in=None)
    return completed, faults


def same_object(part: RunInfo, other: RunInfo | None) -> bool:
    """Whether both are the same object with the same bytes."""
    return other is not None and part.object[:3] == other.object[:3]


def same_entry(part: RunInfo, other: RunInfo | None) -> bool:
    """Whether a checkpoint's entry says what a part's footer says.

    It need not have the filter, and its sections may be unread.
    """
    return (
        other is not None
        and same_object(part, other)
        and part.coverage == other.coverage
        and _said(part) == _said(other)
        and (other.sections_in is not None or _text(part) == _text(other))
        and (other.filter is None or _bits(part) == _bits(other))
    )


def _said(part: RunInfo) -> tuple[object, ...]:
    return part.inputs, part.rows, part.first, part.last, part.body_crc32


def _text(part: RunInfo) -> str | None:
    return part.sections.text if part.sections is not None else None


def _bits(part: RunInfo) -> bytes | None:
    return bytes(part.filter.data) if part.filter else None
