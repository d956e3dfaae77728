"""Merges packs of packets: the packets of an object, from many packs, into one page.

A merged pack is written once and named by its digest, as all that is stored. The rows that locate
its packets win over those of the packs that it was merged of. First the packs, then the run of
`packets`. If the merge stops before the run, nobody reads what it wrote, and the next pass makes
the same merge again. The packs that were merged are deleted later, by the proof of any pack that
readers no longer need (`store/integrity/orphans.py`): each row is in packs that win, byte by byte.

docs/adr/0070-merged-packets.md has the reasons.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta
from itertools import groupby
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged, NotFound
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.compaction.packet_plan import Source, common_slice, worth_merging
from stampede.store.compaction.packet_stream import DamagedInput, PacketStream
from stampede.store.integrity.orphans import KEPT_ROWS, Orphans, packs_that_win
from stampede.store.integrity.row_digests import digests_of
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage, arrays, split_topic_key
from stampede.store.packs.pack import Pack
from stampede.store.packs.pack_name import Merged
from stampede.store.packs.packets import (
    PacketPages,
    hashes_of,
    order_of,
    pack_of,
    read_packets,
)
from stampede.store.parquet.writer import Page
from stampede.store.runs.schema import PACKET_PACKS
from stampede.store.tables.table import Table
from stampede.telemetry.logs import get_logger

log = get_logger()

UNPACKED_BYTES = 256 << 20
"""Of the packets of a merged pack, decompressed: what reads a whole pack holds them in memory."""
HASH_BITS = 32


class Merge(NamedTuple):
    """What one merge did: packs read and written, their bytes, and packs deleted."""

    merged: int = 0
    made: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    deleted: int = 0


class Input(NamedTuple):
    """A pack to merge."""

    source: Source
    stream: PacketStream


class PacketMerger:
    """Merges packs of one store.

    Parameters
    ----------
    table
        The table `packets`.
    kept
        How long a pack stays after it was merged.
    """

    def __init__(self, objects: Objects, table: Table, kept: timedelta) -> None:
        self._objects, self._table, self._kept = objects, table, kept
        self._orphans = Orphans(objects, kept)
        self._held = Cache(KEPT_ROWS)

    def close(self) -> None:
        """Stop the threads."""
        self._orphans.close()

    def merge(self, sources: Sequence[Source]) -> Merge:
        """Merge those packs that readers need, if there are two, and delete the others if they may.

        Raises `Damaged` if a pack cannot be read, `StoreDown`.
        """
        needed, deleted = list[Input](), 0
        among = {source.info.key for source in sources}
        for source in sources:
            try:
                stream = PacketStream(self._objects, source.info)
            except NotFound:  # another compactor, or retention, deleted it
                continue
            except Damaged as error:
                log.error("not merged", key=source.info.key, why=error.message)
                continue
            winners = self._winners(source, stream)
            if not winners or (winners & among and not self._held_by(winners, stream)):
                needed.append(Input(source, stream))
            elif self._delete(source):
                deleted += 1
        while chosen := worth_merging(one.source for one in needed):
            try:
                made = self._made([one for one in needed if one.source in chosen])
                return made._replace(deleted=deleted)
            except DamagedInput as error:  # `scrub` names it too; the others are merged without it
                log.error("not merged", key=error.key, why=error.message)
                needed = [one for one in needed if one.source.info.key != error.key]
            except NotFound:
                break
        return Merge(deleted=deleted)

    def _made(self, needed: Sequence[Input]) -> Merge:
        """Write the merged packs, then the run that locates their packets."""
        locations, coverages, written = [], [], 0
        for pack, coverage in self._packs(needed):
            self._objects.put(pack.key, memoryview(pack.data), pack.sha256)
            again, _ = read_packets(self._objects.get(pack.key), pack.key)
            if not again.locations.equals(pack.locations):
                raise Damaged(f"{pack.key} is not what was written")
            locations.append(pack.locations)
            coverages.append(coverage)
            written += pack.data.size
        self._table.append(pa.concat_tables(locations), Coverage.union(coverages))
        read = sum(one.source.info.size for one in needed)
        return Merge(len(needed), len(locations), read, written)

    def _winners(self, source: Source, stream: PacketStream) -> set[str]:
        """The packs that win over all rows of a pack; none if readers need it."""
        ids = stream.rows["alert_id"].unique().to_pylist()
        rows = self._table.lookup(ids)
        return packs_that_win(stream.rows, source.info.key, PACKET_PACKS, rows)

    def _held_by(self, winners: set[str], stream: PacketStream) -> bool:
        """Whether these packs have all rows of a pack, as far as one sees without the packets.

        If not, a message was sent twice. Its packs are merged if they meet in a merge.
        """
        lacking = digests_of(stream.rows)
        for key in sorted(winners):
            lacking -= self._rows_of(key)
        return not lacking

    def _rows_of(self, key: str) -> set[bytes]:
        """The digests of the rows of a pack, without packets; none if it cannot be read."""
        held: set[bytes] | None = self._held.get((key,))
        if held is None:
            try:
                held = digests_of(PacketStream(self._objects, self._objects.head(key)).rows)
            except (Damaged, NotFound):
                held = set()
            self._held.put((key,), held, len(held))
        return held

    def _delete(self, source: Source) -> bool:
        """Delete a pack whose rows lose, if it is old enough, and proven."""
        if self._objects.now() - source.info.modified < self._kept:
            return False
        if not self._orphans.proven(source.info.key):
            return False
        self._objects.delete(source.info.key)
        return True

    def _packs(self, needed: Sequence[Input]) -> Iterator[tuple[Pack, Coverage]]:
        """The merged packs, one for each slice, and what they cover."""
        sources = [one.source for one in needed]
        inputs = [source.info.key for source in sources]
        streams = [one.stream for one in needed]
        held = Coverage.union(stream.coverage for stream in streams)
        merged = Merged(
            1 + max(source.name.level for source in sources),
            min(source.name.first for source in sources),
            common_slice(sources),
        )
        unpacked = sum(stream.unpacked for stream in streams)
        depth = len(merged.slice) + max(0, (unpacked - 1) // UNPACKED_BYTES).bit_length()
        rows = Rows(streams)
        for bits, numbers in rows.slices(min(depth, HASH_BITS)):
            taken, made = rows.pages(numbers)
            some = rows.table.take(pa.array(taken))
            coverage = coverage_of(some, held)
            name = merged._replace(slice=bits)
            programids = sources[0].name.programids
            yield pack_of(some, made, coverage, programids, name, inputs), coverage


class Rows:
    """The rows of several packs, in the order of a pack, and their packets, each read once.

    Parameters
    ----------
    streams
        The packs.

    Attributes
    ----------
    table
        Rows of `packets.SMALL`, in order.

    Raises `DamagedInput` if the rows of a pack are not in order, and `pages` if it cannot be read.
    """

    def __init__(self, streams: Sequence[PacketStream]) -> None:
        table = pa.concat_tables([stream.rows for stream in streams])
        order = order_of(table)
        sizes = [stream.rows.num_rows for stream in streams]
        origin = np.repeat(np.arange(len(streams)), sizes)[order]
        for number, size in enumerate(sizes):
            if size > 1 and np.any(np.diff(order[origin == number]) < 0):
                raise DamagedInput(streams[number].key, "its rows are not in order")
        self.table = table.take(pa.array(order)).combine_chunks()
        self._origin = origin
        self._packets = [iter(stream) for stream in streams]
        self._repeats = _repeats(self.table)
        self._hashes = hashes_of(self.table["object_id"])

    def slices(self, depth: int) -> Iterator[tuple[str, list[int]]]:
        """The numbers of the rows of each slice, by its bits."""
        bits = [format(each, f"0{HASH_BITS}b")[:depth] for each in self._hashes.tolist()]
        for head, numbers in groupby(range(len(bits)), bits.__getitem__):
            yield head, list(numbers)

    def pages(self, numbers: Iterable[int]) -> tuple[list[int], list[Page]]:
        """The pages of the packets of rows, which follow those asked for before; and their rows.

        A row that repeats the one before it in all columns, and in its packet, is left out.
        """
        made, taken = PacketPages(merged=True), []
        objects = self.table["object_id"]
        last: memoryview | None = None
        for number in numbers:
            packet = next(self._packets[self._origin[number]])
            if self._repeats[number] and last == packet:
                continue
            made.add(objects[number].as_py(), [packet])
            taken.append(number)
            last = packet
        return taken, made.end()


def coverage_of(rows: pa.Table, held: Coverage) -> Coverage:
    """Those of the offsets `held` that rows of packets have.

    A row does not name the id of its topic. So an offset that two topics of that name have is left
    out: a coverage may say too little, never too much.
    """
    places: dict[tuple[str, int], set[int]] = {}
    columns = (rows[name].to_pylist() for name in ("topic", "partition", "offset"))
    for topic, partition, offset in zip(*columns, strict=True):
        if None not in (topic, partition, offset):
            places.setdefault((topic, partition), set()).add(offset)
    found: dict[tuple[str, int], set[int]] = {}
    for key, partition in arrays(held):
        offsets = places.get((split_topic_key(key)[0], partition), set())
        found[key, partition] = {offset for offset in offsets if (key, partition, offset) in held}
    for one, offsets in found.items():
        for other, others in found.items():
            same = split_topic_key(one[0])[0] == split_topic_key(other[0])[0]
            if one < other and one[1] == other[1] and same:
                both = offsets & others
                offsets -= both
                others -= both
    return Coverage.of(found)


def _repeats(rows: pa.Table) -> np.ndarray:
    """Which rows are equal to the one before, in all columns: booleans of shape (n,)."""
    equal = np.ones(max(0, rows.num_rows - 1), bool)
    for column in rows.columns:
        one, other = column.slice(1), column.slice(0, max(0, len(column) - 1))
        same = pc.or_(
            pc.fill_null(pc.equal(one, other), False), pc.and_(one.is_null(), other.is_null())
        )
        equal &= np.asarray(same.to_numpy(), bool)
    return np.concatenate([[False], equal])[: rows.num_rows]
