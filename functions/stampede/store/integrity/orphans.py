"""Orphans: packs that readers no longer need, because other packs hold all their rows.

A batch that is delivered again may be cut differently. Then its alerts are in two packs, and the
winning rows of the table point into one of them. docs/adr/0026-orphans.md says why deleting the
other one is safe.
"""

import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Any, NamedTuple, Self

import pyarrow as pa

from stampede.errors import Damaged, NotFound, StoreDown
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.integrity.row_digests import (
    digests_of,
    digests_of_frames,
    digests_of_pack,
)
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.object_store import ObjectInfo, Objects, find, gives_others
from stampede.store.offsets.coverage import COVERAGE, Coverage
from stampede.store.packs.kinds import spec_of
from stampede.store.packs.pack import Content, Pack, TableRows, is_whole, read_content
from stampede.store.packs.pack_name import PackName
from stampede.store.packs.packets import read_packets
from stampede.store.parquet.checksums import PARQUET_ERRORS, open_file
from stampede.store.runs.schema import ALL_TABLES, CUTOUT_PACKS, PACKET_PACKS, PackSpec
from stampede.store.tables.table import Table

CHECKSUMS = ("crc32", "framed_crc32")
KEPT_ROWS = 300_000
"""Rows of packs whose digests are kept: many packs ask for those of one merged pack."""


def packs_instead(pack: Pack, spec: PackSpec, rows: pa.Table) -> set[str]:
    """The packs from which readers get the rows of a pack; empty if they may need the pack itself.

    A row must lose whatever runs there are: one of them may be unreadable now, or be written later.

    Parameters
    ----------
    rows
        The winning rows of the table of locations, of the pack's alerts.

    Equal checksums suffice here; `Orphans` compares the bytes.
    """
    return _instead(by_place(pack.locations, spec), pack.key, spec, rows)


def packs_that_win(held: pa.Table, key: str, spec: PackSpec, rows: pa.Table) -> set[str]:
    """What `packs_instead` has for the pack of that key.

    `held` are rows of it with the key of its table of locations, without its image.
    """
    wanted = {*spec.locations.key, *spec.locations.precedence, *CHECKSUMS}
    names = [name for name in held.schema.names if name in wanted]
    places: dict[tuple[Any, ...], dict[str, Any]] = {}
    for row in held.select(names).to_pylist():
        row |= {"pack": key, "merged": _level(key)}
        place = tuple(row[name] for name in spec.locations.key)
        if place not in places or not _beats(places[place], row, spec):
            places[place] = row
    return _instead(places, key, spec, rows)


def _instead(
    places: Mapping[tuple[Any, ...], Mapping[str, Any]], key: str, spec: PackSpec, rows: pa.Table
) -> set[str]:
    """The packs that win over all of the rows by place of the pack of that key, or none."""
    if pc.any(pc.equal(rows["pack"], key)).as_py():
        return set()
    winners = by_place(rows, spec)
    instead: set[str] = set()
    for place, row in places.items():
        if row["pack"] is None:  # the survey sent no such cutout
            continue
        winner = winners.get(place)
        if winner is None or not _beats(winner, row, spec) or not _same_bytes(winner, row):
            return set()
        instead.add(winner["pack"])
    return instead


def _same_bytes(winner: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether two rows locate equal files or messages, by their checksums."""
    return all(winner.get(name) == row.get(name) for name in CHECKSUMS)


def _beats(winner: Mapping[str, Any], row: Mapping[str, Any], spec: PackSpec) -> bool:
    """Whether a row wins against any row that locates the same in the pack of `row`, drawn once."""
    if winner["pack"] is None:
        return False
    first = spec.locations.precedence[: spec.locations.precedence.index("pack") + 1]

    def rank(one: Mapping[str, Any]) -> list[tuple[bool, Any]]:
        return [(one.get(name) is not None, one.get(name)) for name in first]

    return rank(winner) > rank(row)


def by_place(rows: pa.Table, spec: PackSpec) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Rows of a table of locations by their key."""
    names = spec.locations.key
    return {tuple(row[name] for name in names): row for row in rows.to_pylist()}


# `mjd` may be NaN; a pack does not know how often its images were drawn; and another `drawn_from`
# does no harm: then the thumbnail is drawn again and compared.
_NOT_COMPARED = {"mjd", "redrawn", "drawn_from"}


def all_agree(images: pa.Table, rows: pa.Table, spec: PackSpec) -> bool:
    """Whether each of these rows locates an image as its pack does.

    Parameters
    ----------
    images
        `Pack.locations`.
    rows
        Rows of the table that point into the pack.
    """
    names = [name for name in spec.locations.schema.names if name not in _NOT_COMPARED]
    by_key = [(name, "ascending") for name in spec.locations.key]
    one, other = (each.select(names).sort_by(by_key) for each in (images, rows))
    if one.equals(other):  # nearly always, and ten times as fast as what follows
        return True
    places, pointing = by_place(one, spec), by_place(other, spec)
    return all(row == places.get(place) for place, row in pointing.items())


class Verdict(Enum):
    """What a pack is."""

    ORPHAN = auto()
    NEEDED = auto()
    DAMAGED = auto()


class Orphans:
    """Proves that packs of one site are orphans, just before they are deleted.

    Safe to share between threads.

    Parameters
    ----------
    grace
        A pack, and those that hold its rows, must be older than this by the store's clock.
    """

    def __init__(self, objects: Objects, grace: timedelta) -> None:
        self._objects, self._grace = objects, grace
        self._tables: dict[str, Table] = {}
        self._contents = Cache(KEPT_ROWS)
        self._lock = threading.Lock()

    def close(self) -> None:
        """Stop the threads."""
        for table in self._tables.values():
            table.close()

    def proven(self, key: str) -> bool:
        """Whether other packs hold each row of a pack, in every column and every byte.

        Winning rows of the table must point into these packs, and its runs must hold the offsets
        of the pack. All packs are read to their ends and verified. Raises `StoreDown`.
        """
        return self.examine(key) is Verdict.ORPHAN

    def examine(self, key: str) -> Verdict:
        """As `proven`; `DAMAGED` if this pack, or one that it was compared with, cannot be read."""
        try:
            return Verdict.ORPHAN if self._proven(key, spec_of(key)) else Verdict.NEEDED
        except NotFound:
            return Verdict.NEEDED
        except Damaged:
            return Verdict.DAMAGED
        except StoreDown:
            if not gives_others(self._objects, key):
                raise
            return Verdict.DAMAGED

    def unneeded(self, key: str, other_site: "Orphans") -> bool:
        """Whether a pack that is damaged holds nothing that readers of either site need.

        As `proven`, but by its small columns: they must be whole, and other packs must hold the
        same rows of the same messages. At `other_site`, too, its rows must lose.

        Raises `StoreDown`.
        """
        try:
            return self._unneeded(key, spec_of(key), other_site)
        except (NotFound, Damaged):
            return False
        except StoreDown:
            if not (gives_others(self._objects, key) and gives_others(other_site._objects, key)):
                raise
            return False

    def _unneeded(self, key: str, spec: PackSpec, other_site: "Orphans") -> bool:
        before = self._objects.head(key)
        if not self._old(before.modified):
            return False
        data = self._objects.get(key)
        if is_whole(key, data):
            return False
        held, coverage = _small_columns(data, key, spec)
        instead = self._losing(held, coverage, key, spec)
        if not instead or not other_site._losing(held, coverage, key, spec):
            return False
        rows = self._rows(held, spec)
        lacking = digests_of(held)
        for other in sorted(instead):
            lacking -= self._held(other, spec, rows, small=True)
        return not lacking and find(self._objects, key) == before

    def _losing(self, held: pa.Table, coverage: Coverage, key: str, spec: PackSpec) -> set[str]:
        """The packs whose rows win over all of a pack, which has the rows `held`; else none."""
        table, winners = self._table(spec), by_place(self._rows(held, spec), spec)
        if table.quarantined() or coverage - table.coverage():
            return set()
        instead: set[str] = set()
        for place, row in by_place(held, spec).items():
            winner = winners.get(place)
            # A row that does not name its message may be any version of the alert.
            if winner is None or None in place:
                return set()
            if winner["pack"] is not None:  # otherwise the message has no such cutout
                if not _beats(winner, row | {"pack": key, "merged": _level(key)}, spec):
                    return set()
                instead.add(winner["pack"])
        return instead

    def _rows(self, held: pa.Table, spec: PackSpec) -> pa.Table:
        return self._table(spec).lookup(held["alert_id"].unique().to_pylist())

    def _proven(self, key: str, spec: PackSpec) -> bool:
        before = self._objects.head(key)
        if not self._old(before.modified):
            return False
        read = _Read.of(self._objects.get(key), key, spec)
        pack, coverage, table = read.pack, read.coverage, self._table(spec)
        rows = table.lookup(pack.locations["alert_id"].unique().to_pylist())
        instead = packs_instead(pack, spec, rows)
        # A run that cannot be read may say that this pack was drawn again.
        if not instead or table.quarantined() or coverage - table.coverage():
            return False
        lacking = _digests(read, spec, by_frame := spec is CUTOUT_PACKS)
        for other in sorted(instead):
            lacking -= self._held(other, spec, rows, by_frame=by_frame)
        if lacking and by_frame:  # another version of a library may have compressed them
            lacking = _digests(read, spec, by_frame=False)
            for other in sorted(instead):
                lacking -= self._held(other, spec, rows)
        # A late delivery may have written the same pack again: then its age counts from there.
        return not lacking and find(self._objects, key) == before

    def _held(
        self,
        key: str,
        spec: PackSpec,
        rows: pa.Table,
        small: bool = False,
        by_frame: bool = False,
    ) -> set[bytes]:
        """Digests of the rows of a pack; none if it is young, or not where `rows` say."""
        info = self._objects.head(key)
        if not self._old(info.modified):
            return set()
        locations, digests = self._content(info, spec, small, by_frame)
        pointing = rows.filter(pc.equal(rows["pack"], key))
        there = locations.filter(pc.is_in(locations["alert_id"], pointing["alert_id"].unique()))
        if not all_agree(there, pointing, spec):
            return set()
        return digests

    def _content(
        self, info: ObjectInfo, spec: PackSpec, small: bool, by_frame: bool
    ) -> tuple[pa.Table, set[bytes]]:
        """The locations of a pack, and the digests of its rows; kept, as many packs may ask."""
        name = info.key, info.etag, small, by_frame
        known: tuple[pa.Table, set[bytes]] | None = self._contents.get(name)
        if known is None:
            data, key = self._objects.get(info.key), info.key
            # The places that the rows claim suffice: the pages must fit them.
            read = _Read.of(data, key, spec, self._table(spec).lookup)
            held = _small_columns(data, key, spec)[0] if small else None
            digests = _digests(read, spec, by_frame) if held is None else digests_of(held)
            known = read.pack.locations, digests
            self._contents.put(name, known, len(digests))
        return known

    def _old(self, modified: datetime) -> bool:
        return self._objects.now() - modified >= self._grace

    def _table(self, spec: PackSpec) -> Table:
        name = spec.locations.name
        with self._lock:
            if name not in self._tables:
                table = Table(self._objects, ALL_TABLES[name])
                table.refresh()
                self._tables[name] = table
            return self._tables[name]


class _Read(NamedTuple):
    """A pack that was read: its bytes and what they hold; `content` is None of packets."""

    data: bytes
    pack: Pack
    coverage: Coverage
    content: Content | None

    @classmethod
    def of(cls, data: bytes, key: str, spec: PackSpec, table_rows: TableRows | None = None) -> Self:
        """The pack of that key. Raises `Damaged` if it is not that."""
        content = None
        if spec is not PACKET_PACKS:
            content = read_content(data, spec, key, table_rows)
        pack, coverage = content[:2] if content else read_packets(data, key)
        if pack.key != key:
            raise Damaged(f"{key} does not hold the pack of that name: that is {pack.key}")
        return cls(data, pack, coverage, content)


def _digests(read: _Read, spec: PackSpec, by_frame: bool) -> set[bytes]:
    """A digest of each row of a pack."""
    if by_frame and read.content:
        return digests_of_frames(read.content)
    return digests_of_pack(read.data, read.pack.key, spec)


def _level(key: str) -> int | None:
    """What the rows that locate the alerts of a pack have in the column `merged`."""
    name = PackName.parse(key)
    return name.level or None if name else None


def _small_columns(data: bytes, key: str, spec: PackSpec) -> tuple[pa.Table, Coverage]:
    """A pack's rows without what the key of its table stands for, and its coverage.

    Raises `Damaged` if these bytes of it are damaged, or if it was written before they named it.
    """
    names = [name for name in spec.rows.schema.names if name != spec.image]
    file = open_file(key, data)
    try:
        coverage = Coverage.from_json(file.metadata.metadata[COVERAGE])
        return file.read(columns=names, use_threads=False).select(names), coverage
    except PARQUET_ERRORS as error:
        raise Damaged(f"{key} is damaged: {error}") from None
