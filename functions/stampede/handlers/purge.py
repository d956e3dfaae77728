"""purge: removes what is of programmes, or of an archive, that is not stored any more, everywhere.

Readers withhold it as soon as the setting is changed (`store/programmes/rights.py`); this removes
it. A packet of an alert that is still stored stays, without the rows of other programmes.

A purge may stop anywhere: the next one goes on. Old packs go last, when no row names them.
"""

import math
import os
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.batch_parts import Decoded
from stampede.alerts.decoder import Decoder
from stampede.alerts.framing import Framing
from stampede.alerts.packets import SENT, joined, packet_rows, sent_crc32
from stampede.config.settings import Settings
from stampede.errors import Damaged, NotFound
from stampede.events.kafka.schema_registry import schemas_of
from stampede.handlers.decoding import DecoderFile
from stampede.handlers.packet_storer import put_packets
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.replay.messages import PackRead, Replayed, Unsendable, replayed
from stampede.lookup.lookup import Lookup
from stampede.lookup.packs.packet_reader import cuts_of
from stampede.store.compaction.garbage_collection import unneeded_at_second_site
from stampede.store.compaction.purge import LATER, purge_table, withheld_objects, withheld_runs
from stampede.store.objects.object_store import Objects, read_twice
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects, open_replica
from stampede.store.packs.pack import read_rows
from stampede.store.packs.packets import with_columns
from stampede.store.programmes.rights import Rights
from stampede.store.runs.schema import (
    ALL_TABLES,
    DETECTIONS,
    PACKET_PACKS,
    PACKETS,
    POSITIONS,
)
from stampede.store.tables.table import Table

Show = Callable[[str], None]
_OF_ARCHIVES = (POSITIONS, DETECTIONS)


def found(settings: Settings) -> Counter[str]:
    """How many runs and objects of each kind `purge` would rewrite or remove, by folder.

    Raises `Damaged`, `StoreDown`.
    """
    rights, count = Rights.of(settings), Counter[str]()
    for objects in _sites(settings):
        for spec in ALL_TABLES.values():
            table = Table(objects, spec, rights=rights)
            table.refresh()
            count[f"tables/{spec.name}"] += len(withheld_runs(table))
            table.close()
        for info in withheld_objects(objects, rights):
            count[info.key.partition("/")[0]] += 1
    return +count


def purge(
    settings: Settings, show: Show = lambda what: None, incomplete: bool = False
) -> Counter[str]:
    """Remove it; how many runs were rewritten and objects removed, by folder.

    Parameters
    ----------
    show
        Called with what is done next.
    incomplete
        Also remove packets of alerts that are stored, if they cannot be cut: their images are not
        there, or are damaged. Otherwise they stay withheld, and this raises `Damaged` in the end.

    Raises `Damaged`, `StoreDown`; what was done before stays done.
    """
    rights, count = Rights.of(settings), Counter[str]()
    first, *others = _sites(settings)
    packets = [info.key for info in withheld_objects(first, rights)]
    packets = [key for key in packets if key.startswith(f"{PACKET_PACKS.prefix}/")]
    uncut = cut_packets(settings, first, packets, show)
    kept = set() if incomplete else {*uncut}
    for spec in ALL_TABLES.values():
        if spec is PACKETS and kept:
            continue  # their rows stay too: without one a pack may be taken for an orphan
        table = Table(first, spec, rights=rights)
        try:
            count[f"tables/{spec.name}"] += purge_table(table, settings.run_rows, show)
        finally:
            table.close()
    _delete(first, rights, kept, count, show)
    for second in others:
        _purge_second_site(settings, first, second, rights)
        _delete(second, rights, kept, count, show)
    if kept:
        raise Damaged(
            f"{len(kept)} packs of packets stay, and nothing gives them: images of "
            f"{sum(uncut.values())} alerts in them are not stored, or damaged, so their packets "
            "cannot be cut. Run it again when `cutouts` has stored them or `stampede reconcile` "
            "has mended them; `--incomplete` removes these packets"
        )
    return +count


def found_of_archive(settings: Settings, archive: str) -> Counter[str]:
    """How many runs `purge_archive` would rewrite, by folder. Raises `Damaged`, `StoreDown`."""
    rights, count = Rights(without=frozenset({archive})), Counter[str]()
    for objects in _sites(settings):
        for spec in _OF_ARCHIVES:
            table = Table(objects, spec, rights=rights)
            table.refresh()
            count[f"tables/{spec.name}"] += len(withheld_runs(table))
            table.close()
    return +count


def purge_archive(settings: Settings, archive: str, show: Show = lambda what: None) -> Counter[str]:
    """Remove the light curves of an archive; how many runs were rewritten, by folder.

    It must not be the name of a survey that sends alerts: their points would go too.

    Raises `Damaged`, `StoreDown`; what was done before stays done.
    """
    rights, count = Rights(without=frozenset({archive})), Counter[str]()
    first, *others = _sites(settings)
    for spec in _OF_ARCHIVES:
        table = Table(first, spec, rights=rights)
        try:
            count[f"tables/{spec.name}"] += purge_table(table, settings.run_rows, show)
        finally:
            table.close()
    for second in others:
        _purge_second_site(settings, first, second, rights)
    return +count


def _purge_second_site(settings: Settings, first: Objects, second: Objects, rights: Rights) -> None:
    """Copy what was rewritten, and delete the runs that it replaces."""
    Reconciler(settings.model_copy(update={"reconcile": "replica"})).run(everything=True)
    now = second.now() + LATER
    for key in unneeded_at_second_site(first, second, now, timedelta(), rights=rights):
        second.delete(key)


def _sites(settings: Settings) -> list[Objects]:
    return [open_objects(settings), *([open_replica(settings)] if settings.replica else [])]


def _delete(
    objects: Objects, rights: Rights, kept: Collection[str], count: Counter[str], show: Show
) -> None:
    for info in withheld_objects(objects, rights):
        if info.key in kept:
            continue
        show(info.key)
        objects.delete(info.key)
        count[info.key.partition("/")[0]] += 1


def cut_packets(
    settings: Settings, objects: Objects, packs: Sequence[str], show: Show
) -> Counter[str]:
    """Store the packets in these packs again, without rows of programmes that are not stored.

    Returns by pack the number of its packets that should be stored again and cannot be.
    """
    uncut = Counter[str]()
    if not packs:
        return uncut
    cutter = _Cutter(settings, objects)
    try:
        for key in packs:
            show(key)
            uncut[key] = cutter.cut(key)
    finally:
        cutter.close()
    return +uncut


class _Cutter:
    """Stores packets again without rows of programmes that are not stored."""

    def __init__(self, settings: Settings, objects: Objects) -> None:
        self._objects = objects
        self._table = Table(objects, PACKETS, threads=1)
        self._lookup = Lookup(objects, settings, relist_on_miss=False)
        self._decoder = BatchDecoder(
            Framing(1 << 30, schemas_of(settings)),
            Decoder(DecoderFile(settings.spool)),
            latest_mjd=lambda: math.inf,
            secret=os.urandom(12),
            programids=Rights.of(settings).programids or frozenset(),
        )

    def cut(self, key: str) -> int:
        """Those of one pack; how many of them could not be cut, as an image is not there.

        An alert of such a programme, or with an image past its retention, is left out. Raises
        `Damaged`, `StoreDown`.
        """
        try:
            rows, _ = read_twice(lambda: read_rows(self._objects.get(key), key), Damaged, NotFound)
        except NotFound:
            return 0
        rows = with_columns(rows)
        numbers: list[int] = []
        whole: list[bytes] = []
        uncut: list[bytes] = []
        for number, (row, packet, found) in enumerate(zip(*self._replayed(rows), strict=True)):
            if isinstance(found, Replayed):
                numbers.append(number)
                whole.append(found.message)
            elif not found.gone:  # zeros do: nothing here reads the images
                uncut.append(joined(packet, cuts_of(row), lambda cut: [bytes(cut.length)]))
        for begin, decoded in self._decoded(whole):
            if decoded.groups:
                made, packets = packet_rows(decoded.groups, whole[begin:])
                before = rows.take(pa.array(numbers[begin:])).take(made["number"])
                put_packets(self._table, _as_before(made, before), packets, _no_coverage)
        return sum(decoded.faults.count(None) for _, decoded in self._decoded(uncut))

    def _replayed(
        self, rows: pa.Table
    ) -> tuple[list[dict[str, Any]], list[memoryview], list[Replayed | Unsendable]]:
        """The rows of a pack, their packets, and their messages."""
        # Of any time: an earlier version may have stored one that no datetime has.
        alerts = [row | {"time": None} for row in rows.drop_columns(["packet", "time"]).to_pylist()]
        values = [packet.as_buffer() for packet in rows["packet"]]
        cut = [(row["alert_id"], row["survey"], sent_crc32(row)) for row in alerts if cuts_of(row)]
        read = PackRead([*zip(alerts, values, strict=True)], self._lookup.parts_of(cut))
        return alerts, [memoryview(value) for value in values], [*replayed(read, self._lookup)]

    def _decoded(self, messages: Sequence[bytes]) -> Iterator[tuple[int, Decoded]]:
        """Decoded messages, in batches, and the number of the first of each batch."""
        done = 0
        while done < len(messages):
            decoded = self._decoder.detections(messages[done:])
            yield done, decoded
            done += len(decoded.faults)

    def close(self) -> None:
        """Stop the threads."""
        self._lookup.close()
        self._table.close()


def _as_before(made: pa.Table, before: pa.Table) -> pa.Table:
    """`made` with the Kafka records of `before`, and with the proof of what was cut before.

    Cutouts of a message that was stored before `framed_crc32` was have the CRC-32 of that message.
    """
    names = (name for name in PACKET_PACKS.rows.schema.names if name != PACKET_PACKS.image)
    for name in [name for name in names if name not in made.column_names]:
        made = made.append_column(name, before[name])
    for name in SENT:
        old, new = before[name], made[name]
        value = pc.coalesce(old, new)
        if name == "sent_crc32":
            earlier = pc.if_else(before["framed_crc32"].is_null(), before["crc32"], new)
            value = pc.coalesce(old, earlier)
        elif name == "rows_cut":
            value = pc.add(new, pc.fill_null(old, 0))
        made = made.set_column(made.schema.get_field_index(name), name, value)
    return made


def _no_coverage(_: Sequence[int]) -> Coverage:
    """The run of the packets of before has their offsets, and so has the one it is merged into."""
    return Coverage()
