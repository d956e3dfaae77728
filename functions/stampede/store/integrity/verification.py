"""Verifies whole objects: that every byte is as it was written, and under its own name.

A lookup verifies what it reads. This reads everything of one object, for repair, audits and copies.
"""

import random
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import TypeVar

import pyarrow as pa
from isal import isal_zlib

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.store.integrity.index_check import LookupCheck
from stampede.store.integrity.ledger import parse_expected
from stampede.store.integrity.proof_keys import digest_in
from stampede.store.integrity.saved_state import digest_of
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import ObjectInfo, Objects, find, gives_others, read_twice
from stampede.store.objects.probes import is_probe
from stampede.store.packs.kinds import read_named
from stampede.store.packs.pack_name import night_of
from stampede.store.parquet.checksums import open_file, read_file
from stampede.store.programmes.keys import SUFFIX
from stampede.store.runs.footer import MAGIC, with_columns
from stampede.store.runs.merge import is_sorted
from stampede.store.runs.packed_coverage import PackedCoverage, check_block
from stampede.store.runs.reader import MIB, RunFile, RunReader
from stampede.store.runs.run import RunInfo
from stampede.store.runs.run_name import RunName, digest, name_of, prefix
from stampede.store.runs.schema import ALL_TABLES, TableSpec
from stampede.store.tables.checkpoint import bucket_of, is_checkpoint, parse_checkpoint
from stampede.store.tables.checkpoint_files import check_file_beside, is_file_beside

_NAMED = re.compile(
    rf"(alerts/.+/(?:merged\d+-)?|deadletters/.+/)([0-9a-f]{{32}}){SUFFIX}\.parquet"
)
_EXPECTED = re.compile(r"expected/.+")
_PIECE = MIB  # of an object that is only asked for
_ONE_GET = 8 * MIB  # smaller runs are read by one GET: most runs of level 0 have 100 KB
_GROUPS = 64  # row groups of a run that are read at once: 4 MB
_INDEX_BYTES = 8 * MIB  # for the index of a run; its row groups are not cached

SAMPLE = 1 / 50
"""The share of what the digests prove that is nevertheless decoded, at random: a machine with bad
memory may have stored what cannot be, under a right digest."""

A = TypeVar("A")


def verify(objects: Objects, info: ObjectInfo) -> None:
    """Read an object and verify it; once more if it fails, as the network may be to blame.

    Raises
    ------
    Damaged
        The object is not what was stored, or no object of the store has such a name. The message
        names the key and the fault.
    NotFound
        The object is gone.
    StoreDown
        The store does not answer, or the object changed meanwhile.
    """
    check = _check_of(info.key)
    read_twice(lambda: check(objects, info), Damaged)


def sound(objects: Objects, info: ObjectInfo) -> bool:
    """Whether `verify` finds no fault. Raises `NotFound`, `StoreDown`."""
    try:
        verify(objects, info)
    except Damaged:
        return False
    return True


def unreadable(objects: Objects, key: str) -> bool:
    """Whether a store fails at this object, but gives others: a disk, not the network.

    Asks for every byte, in memory that does not grow with the object. Raises `StoreDown` if the
    store gives no other object either.
    """
    try:
        info = find(objects, key)
        for start in range(0, info.size if info else 0, _PIECE):
            objects.get(key, start, _PIECE)
    except NotFound:
        return False
    except StoreDown:
        if not gives_others(objects, key):
            raise
        return True
    return False


def twice(objects: Objects, key: str, read: Callable[[], A]) -> A:
    """What `read` returns of an object; once more if it fails, as the network may be to blame.

    Raises
    ------
    Damaged
        It is damaged both times, or the store fails at it both times but gives others.
    NotFound, StoreDown
        As `read` does.
    """
    try:
        return read_twice(read, Damaged, StoreDown)
    except StoreDown as error:
        if not gives_others(objects, key):
            raise
        raise Damaged(error.message) from error


def foreign(key: str) -> bool:
    """Whether no object of the store has such a key."""
    try:
        _check_of(key)
    except Damaged:
        return True
    return False


def table_of(key: str) -> TableSpec | None:
    """The table whose part of a run has this key; None if it is no such key."""
    if not RunName.parse(key):
        return None
    folder = key.rpartition("/")[0] + "/"
    return next((spec for spec in ALL_TABLES.values() if folder == prefix(spec.name)), None)


def is_merged(key: str) -> bool:
    """Whether a key is that of a part of a merged run, whose name is no digest of its bytes."""
    name = RunName.parse(key) if table_of(key) else None
    return name is not None and name.level > 0


def _check_of(key: str) -> Callable[[Objects, ObjectInfo], None]:
    if night_of(key) is not None:
        return _check_pack
    if _NAMED.fullmatch(key):
        return _check_digest
    if is_checkpoint(key) and key.split("/")[1] in ALL_TABLES:
        return _check_checkpoint
    if bucket_of(key):
        return _check_bucket
    if is_file_beside(key) and key.split("/")[1] in ALL_TABLES:
        return _check_file_beside
    if table_of(key):
        return _check_run
    if is_probe(key):
        return lambda objects, info: None
    if _EXPECTED.fullmatch(key):
        return _check_number
    if digest_of(key) or digest_in(key):
        return _check_bytes
    raise Damaged(f"{key} is not the name of an object of the store")


def _check_pack(objects: Objects, info: ObjectInfo) -> None:
    read_named(_whole(objects, info), info.key)


def _check_digest(objects: Objects, info: ObjectInfo) -> None:
    named = _NAMED.fullmatch(info.key)
    if named is None or named[2] != digest(_whole(objects, info)):
        raise Damaged(f"{info.key} is damaged: its bytes do not have the digest in its name")


def _check_checkpoint(objects: Objects, info: ObjectInfo) -> None:
    parse_checkpoint(info.key, _whole(objects, info), ALL_TABLES[info.key.split("/")[1]])


def _check_file_beside(objects: Objects, info: ObjectInfo) -> None:
    check_file_beside(info.key, _whole(objects, info), ALL_TABLES[info.key.split("/")[1]])


def _check_bucket(objects: Objects, info: ObjectInfo) -> None:
    if bucket_of(info.key) != digest(_whole(objects, info)):
        raise Damaged(f"{info.key} is damaged: its bytes do not have the digest in its name")


def _check_number(objects: Objects, info: ObjectInfo) -> None:
    parse_expected(info.key, _whole(objects, info))


def _check_bytes(objects: Objects, info: ObjectInfo) -> None:
    if (digest_of(info.key) or digest_in(info.key)) != digest(_whole(objects, info)):
        raise Damaged(f"{info.key} is damaged: its bytes do not have the digest in its name")


def _whole(objects: Objects, info: ObjectInfo) -> bytes:
    data = objects.get(info.key)
    if len(data) != info.size:
        raise StoreDown(f"{info.key} changed while it was read")
    return data


def _check_run(objects: Objects, info: ObjectInfo) -> None:
    """Verify a part of a run, in memory that does not grow with its size."""
    spec = ALL_TABLES[info.key.split("/")[1]]
    data = _whole(objects, info) if info.size <= _ONE_GET else None
    objects = objects if data is None else _Held(info.key, data)
    reader = RunReader(objects, spec, _INDEX_BYTES)
    run = reader.footer(info)  # holds the part to its name
    at_once = None if data is None else _keys_at_once(info.key, data, spec)
    file = reader.open(run)
    body = _Body(objects.get(info.key, 0, MAGIC), run)
    lookups = LookupCheck(objects, run, file.index, spec)
    before = spec.no_rows.select(spec.key)
    first = None
    numbers = file.numbers
    for at in range(0, len(numbers), _GROUPS):
        groups = numbers[at : at + _GROUPS]
        rows = _keys(file, groups, body, spec, at_once)
        # With the last row of the groups before: order and distinct keys across groups too.
        if not is_sorted(pa.concat_tables([before, *rows]), spec):
            raise Damaged(f"{info.key} is not sorted by its key, without repeats")
        for group, some in zip(groups, rows, strict=True):
            lookups.check(group, some[spec.leading])
        first = rows[0][spec.leading][0].as_py() if at == 0 else first
        before = rows[-1].slice(rows[-1].num_rows - 1)
    last = before[spec.leading][0].as_py() if run.rows else None
    if (first, last) != (run.first, run.last):
        raise Damaged(f"{info.key} does not have the first and last rows that its footer says")
    body.add(lookups.sections)
    if isinstance(run.coverage, PackedCoverage):
        check_block(info.key, run.coverage)
        body.add(run.coverage.data)
    body.check(objects)


def _keys_at_once(key: str, data: bytes, spec: TableSpec) -> pa.Table:
    """The key of every row of a run: opening each row group takes longer. Raises `Damaged`."""
    file = open_file(key, data)
    with_columns(file.schema_arrow.empty_table(), spec, key)
    names = [name for name in spec.key if name in file.schema_arrow.names]
    return with_columns(read_file(key, file, names), spec, key, spec.key)


def _keys(
    file: RunFile,
    groups: Sequence[int],
    body: "_Body",
    spec: TableSpec,
    at_once: pa.Table | None,
) -> list[pa.Table]:
    """The keys of row groups, whose bytes are added to `body`; `at_once` are those of all."""
    found = []
    for group, block in file.fetch(groups):
        body.add(block)
        # The checksum of the body proves the columns that are not decoded.
        whole = not body.has_checksum or random.random() < SAMPLE
        if at_once is not None and not whole:
            count = file.index.rows_of(group)
            found.append(at_once.slice(int(file.index.rows[:group].sum()), count))
            continue
        whole = whole or group == 0  # for the columns that the part has
        found.append(file.decode(group, block, None if whole else spec.key).select(spec.key))
    return found


class _Held(MemoryObjects):
    """One object that was read whole; its etag, an MD5, is not computed."""

    def __init__(self, key: str, data: bytes) -> None:
        super().__init__()
        self._put(key, data, "")


class _Body:
    """The bytes of a run: all of them for the digest of level 0, else those before the footer."""

    def __init__(self, magic: bytes, run: RunInfo) -> None:
        self._run = run
        self._sha256 = sha256() if run.name.level == 0 else None
        self._crc32 = self._end = 0
        self.add(magic)

    @property
    def has_checksum(self) -> bool:
        """Whether `check` proves the bytes: early merged runs have no checksum of them."""
        return self._sha256 is not None or self._run.body_crc32 is not None

    def add(self, piece: bytes) -> None:
        self._end += len(piece)
        if self._sha256:
            self._sha256.update(piece)
        else:
            self._crc32 = isal_zlib.crc32(piece, self._crc32)

    def check(self, objects: Objects) -> None:
        """Raise `Damaged` if they are not what was written."""
        key, size = self._run.key, self._run.object.size
        if self._sha256:
            self._sha256.update(objects.get(key, self._end, size - self._end))
            if name_of(self._sha256.hexdigest()) != self._run.name.digest:
                raise Damaged(f"{key} is damaged: its bytes do not have the digest in its name")
        elif self._run.body_crc32 not in (None, f"{self._crc32:08x}"):
            raise Damaged(f"{key} is damaged: its bytes do not have the checksum in its footer")
