"""Section files: the sections of parts of one large run, in one object beside the checkpoints.

They would be most of the bytes of a checkpoint, and a lookup needs those of few parts. So a
checkpoint names these objects, which change only with the run, and a lookup reads one when it
needs it. A section file decides nothing: without it, the footers of its parts have the same.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import pyarrow as pa

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.object_store import Objects, read_twice
from stampede.store.parquet.checksums import PARQUET_ERRORS, open_file, read_file, write
from stampede.store.runs.index_sections import Section, Sections, as_text
from stampede.store.runs.run import RunInfo
from stampede.store.runs.run_name import digest
from stampede.store.runs.schema import TableSpec
from stampede.telemetry.logs import get_logger

CHECKPOINTS = "checkpoints/"
_KEY = re.compile(rf"{CHECKPOINTS}(?P<table>\w+)/sections-(?P<digest>[0-9a-f]{{32}})\.parquet")

log = get_logger()


def is_section_file(key: str) -> bool:
    """Whether a key is that of a section file."""
    return _KEY.fullmatch(key) is not None


class SectionFile:
    """The parsed sections of several parts."""

    def __init__(self, key: str, rows: pa.Table, spec: TableSpec) -> None:
        self.key, self._rows, self._spec = key, rows, spec
        self._places: Mapping[str, int] = {
            part: place for place, part in enumerate(rows["key"].to_pylist())
        }

    @property
    def nbytes(self) -> int:
        """Memory taken."""
        return int(self._rows.nbytes) + 200 * len(self._places)

    def of(self, part: RunInfo) -> Sections:
        """The sections of a part. Raises `Damaged` if it has none of this very object."""
        try:
            row = self._row(self._places[part.key])
            named = row["etag"], row["first"], row["last"]
            if named != (part.object.etag, part.first, part.last):
                raise Damaged(f"{self.key} has sections of another {part.key}")
            return _sections(row, self._spec)
        except PARQUET_ERRORS as error:
            raise Damaged(f"{self.key} has no sections of {part.key}: {error}") from None

    def check(self) -> None:
        """Raise `Damaged` unless each of its parts has sections that can be its own."""
        for key, place in self._places.items():
            try:
                _sections(self._row(place), self._spec)
            except PARQUET_ERRORS as error:
                raise Damaged(f"{self.key} has no sections of {key}: {error}") from None

    def _row(self, place: int) -> dict[str, Any]:
        [row] = self._rows.slice(place, 1).to_pylist()
        return dict(row)


class SectionFiles:
    """The section files of a table, the last ones used in memory.

    Parameters
    ----------
    cache_bytes
        Most bytes of them in memory.
    """

    def __init__(self, objects: Objects, spec: TableSpec, cache_bytes: int) -> None:
        self._objects, self._spec, self._cache = objects, spec, Cache(cache_bytes)

    def of(self, part: RunInfo) -> Sections | None:
        """The sections of a part in its section file; None if that cannot be read."""
        key = part.sections_in or ""
        try:
            file: SectionFile | None = self._cache.get((key,))
            if file is None:
                file = read_twice(lambda: self._read(key), Damaged)
                self._cache.put((key,), file, file.nbytes)
            return file.of(part)
        except Damaged as error:  # no row is lost: the footer has the same
            log.error("damaged", key=key, why=error.message)
        except NotFound:  # one that no checkpoint names any more
            log.info("a section file is gone", key=key)
        except StoreDown as error:  # at this object alone: otherwise the footer fails too
            log.warning("a section file cannot be read", key=key, why=error.message)
        return None

    def _read(self, key: str) -> SectionFile:
        return parse_section_file(key, self._objects.get(key), self._spec)


def write_section_file(parts: Sequence[RunInfo], spec: TableSpec) -> tuple[str, pa.Buffer]:
    """Key and bytes of the section file of parts, each of which has sections that are `plain`."""
    rows = []
    for part in parts:
        listed = part.sections.listed if part.sections is not None else []
        rows.append(
            {
                "key": part.key,
                "etag": part.object.etag,
                "first": part.first,
                "last": part.last,
                "start": listed[0].start,
                "groups": _step(listed),
                "keys": [section.key for section in listed],
                "index_lengths": [section.index_length for section in listed],
                "filter_lengths": [section.filter_length for section in listed],
                "crc32s": [section.crc32 for section in listed],
            }
        )
    data = write(pa.Table.from_pylist(rows, schema=_columns(spec)), compression="zstd")
    return f"{CHECKPOINTS}{spec.name}/sections-{digest(data)}.parquet", data


def parse_section_file(key: str, data: bytes, spec: TableSpec) -> SectionFile:
    """The section file in an object. Raises `Damaged`."""
    named = _KEY.fullmatch(key)
    if named is None or named["table"] != spec.name:
        raise Damaged(f"{key} is not the key of a section file of {spec.name}")
    if named["digest"] != digest(data):
        raise Damaged(f"{key} is damaged: its bytes do not have the digest in its name")
    rows = read_file(key, open_file(key, data))
    if rows.schema.remove_metadata() != _columns(spec):
        raise Damaged(f"{key} does not have the columns of a section file")
    return SectionFile(key, rows, spec)


def is_plain(part: RunInfo) -> bool:
    """Whether a section file can say all that a part's sections say.

    They have as many row groups each, and follow each other without a gap: `RunWriter` writes no
    others.
    """
    if part.sections is None:
        return False
    listed = part.sections.listed
    return bool(listed) and part.sections.text == as_text(
        _listed(
            listed[0].start,
            _step(listed),
            [section.key for section in listed],
            [section[3:] for section in listed],
        )
    )


def _columns(spec: TableSpec) -> pa.Schema:
    leading = spec.schema.field(spec.leading).type
    numbers = pa.list_(pa.uint32())
    return pa.schema(
        [
            pa.field("key", pa.string(), False),
            pa.field("etag", pa.string(), False),
            pa.field("first", leading, False),
            pa.field("last", leading, False),
            pa.field("start", pa.int64(), False),  # of the first section
            pa.field("groups", pa.int32(), False),  # row groups of a section
            pa.field("keys", pa.list_(leading), False),
            pa.field("index_lengths", numbers, False),
            pa.field("filter_lengths", numbers, False),
            pa.field("crc32s", numbers, False),
        ]
    )


def _step(listed: Sequence[Section]) -> int:
    return listed[1].group if len(listed) > 1 else 1


def _listed(
    start: int, groups: int, keys: Sequence[Any], numbers: Sequence[tuple[int, int, int]]
) -> list[Section]:
    """Sections that follow each other: `numbers` are their lengths and their CRC-32."""
    starts = accumulate((index + bits for index, bits, _ in numbers), initial=start)
    return [
        Section(key, groups * place, begin, *rest)
        for place, (key, begin, rest) in enumerate(zip(keys, starts, numbers, strict=False))
    ]


def _sections(row: Mapping[str, Any], spec: TableSpec) -> Sections:
    """The sections in a row. Raises one of `PARQUET_ERRORS`."""
    numbers = [*zip(row["index_lengths"], row["filter_lengths"], row["crc32s"], strict=True)]
    if len(numbers) != len(row["keys"]):
        raise ValueError("its lists differ in length")
    listed = _listed(row["start"], row["groups"], row["keys"], numbers)
    found = Sections(as_text(listed), row["last"], spec)
    found.check(row["first"])
    return found
