"""Merged packets: the same bytes by the same rows, whatever stops a merge."""

import random
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from stampede.alerts.columns import PACKET
from stampede.errors import StoreDown
from stampede.handlers.packet_storer import put_packets
from stampede.store.compaction import packet_merge, packet_plan
from stampede.store.compaction.packet_merge import Merge, PacketMerger, coverage_of
from stampede.store.compaction.packet_plan import due_merges
from stampede.store.integrity.orphans import Orphans
from stampede.store.integrity.unindexed_packs import index
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.packets import PAGE_BYTES, row_pages, write_packets
from stampede.store.parquet import pages
from stampede.store.runs.schema import PACKETS
from stampede.store.tables.table import Table
from tests.support.store.watched_objects import Watched

NIGHT = 60000
START = datetime(2026, 3, 1, tzinfo=UTC)
TOPIC = "alerts@0"
AT_ONCE = timedelta()


def row(
    alert_id: int, object_id: str, night: int, offset: int, data: bytes, topic: str = "alerts"
) -> dict:
    return {
        **{"alert_id": alert_id, "survey": "ztf", "object_id": object_id},
        **{"mjd": night + alert_id % 1000 / 1000, "topic": topic, "partition": 0},
        **{"offset": offset, "key": "k", "headers": "{}", "record": "", "time": START},
        **{"packet": data, "crc32": alert_id, "framed_crc32": alert_id},
    }


def store(objects: Objects, rows: Sequence[dict], topic: str = TOPIC) -> None:
    """Store packets as one batch; those of one night are a pack."""
    table = pa.Table.from_pylist(list(rows), PACKET)
    table = table.append_column("night", pa.array([int(each["mjd"]) for each in rows]))
    table = table.append_column("programids", pa.array([""] * len(rows)))
    table = table.append_column("number", pa.array(range(len(rows)), pa.int64()))
    order = np.argsort(table["night"].to_numpy(), kind="stable")

    def coverage(numbers: Sequence[int]) -> Coverage:
        return Coverage.of({(topic, 0): [rows[number]["offset"] for number in numbers]})

    pieces = [[rows[number]["packet"]] for number in order]
    put_packets(Table(objects, PACKETS, threads=1), table.take(pa.array(order)), pieces, coverage)


def merge_once(
    objects: Objects, settled: int = NIGHT + 999, kept: timedelta = AT_ONCE
) -> list[Merge]:
    """One pass over all packs, as if they were of one window."""
    table = Table(objects, PACKETS, threads=1)
    merger = PacketMerger(objects, table, kept)
    try:
        table.refresh()
        packs = [info for info in objects.list("packets/") if info.key.endswith(".parquet")]
        return [merger.merge(sources) for sources in due_merges(packs, settled, 30)]
    finally:
        merger.close()
        table.close()


def packets_of(objects: Objects) -> dict[tuple[int, int], bytes]:
    """The packet of each alert id and CRC-32, as readers get it: by its row and its page."""
    table, found = Table(objects, PACKETS, threads=1), {}
    table.refresh()
    ids = range(1, 400)
    for place in table.lookup(ids).to_pylist():
        page = objects.get(place["pack"], place["offset"], place["length"])
        packet = bytes(pages.values(page)[place["row"]])
        found[place["alert_id"], place["crc32"]] = packet
    table.close()
    return found


def coverage(objects: Objects) -> Coverage:
    table = Table(objects, PACKETS, threads=1)
    table.refresh()
    return table.coverage()


def keys(objects: Objects) -> list[str]:
    return [info.key for info in objects.list("packets/")]


def stored_rows(objects: Objects) -> list[tuple]:
    """Each row of each pack: alert, position and packet."""
    return [
        (row["alert_id"], row["offset"], row["topic"], row["packet"])
        for key in keys(objects)
        for page in row_pages(objects.get(key), key)
        for row in page.to_pylist()
    ]


def growing(number: int, object_id: str, night: int) -> dict:
    """An alert whose packet repeats most of the object's packet before."""
    noise = np.random.default_rng(number).bytes(200)
    history = np.random.default_rng(sum(object_id.encode())).bytes(80_000)
    return row(number, object_id, night, number, noise + history)


def test_packets_of_an_object_become_one_page() -> None:
    objects = MemoryObjects()
    for night in range(8):
        some = [growing(10 * night + n, f"O{n}", NIGHT + night // 4) for n in range(1, 5)]
        store(objects, some)
    before, held = packets_of(objects), coverage(objects)
    size = sum(info.size for info in objects.list("packets/"))

    assert [done.merged for done in merge_once(objects)] == [4, 4]
    assert packets_of(objects) == before
    assert len(keys(objects)) == 10  # those of before stay for a while
    merge_once(objects)
    assert len(keys(objects)) == 2
    [done] = merge_once(objects)
    assert (done.merged, done.made) == (2, 1)
    merge_once(objects)
    assert packets_of(objects) == before
    assert coverage(objects) == held
    [info] = objects.list("packets/")
    assert info.key.startswith(f"packets/{NIGHT + 1}/merged2-{NIGHT}-all-")
    assert info.size < size / 6
    assert merge_once(objects) == []


def test_a_pack_stays_until_readers_cannot_have_its_rows() -> None:
    now = [START]
    objects = MemoryObjects(lambda: now[0])
    for number in range(1, 4):
        store(objects, [growing(number, "O", NIGHT)])
    day = timedelta(days=1)
    now[0] += timedelta(days=30)
    assert [done.merged for done in merge_once(objects, kept=day)] == [3]
    now[0] += day / 2
    assert merge_once(objects, kept=day) == [Merge()]
    now[0] += day
    assert merge_once(objects, kept=day) == [Merge(deleted=3)]
    assert len(keys(objects)) == 1


def test_large_merges_are_divided_by_objects(monkeypatch) -> None:
    monkeypatch.setattr(packet_merge, "UNPACKED_BYTES", 1_000_000)
    objects = MemoryObjects()
    for night in range(4):
        store(objects, [growing(50 * night + n, f"O{n}", NIGHT) for n in range(1, 21)])
    before = packets_of(objects)
    [done] = merge_once(objects)
    assert 4 <= done.made <= 8
    assert packets_of(objects) == before
    merge_once(objects)
    assert len(keys(objects)) == done.made
    assert packets_of(objects) == before
    assert merge_once(objects) == []


def test_the_same_merge_writes_the_same_bytes() -> None:
    one, other = MemoryObjects(), MemoryObjects()
    batches = [[growing(10 * b + n, f"O{n}", NIGHT) for n in range(1, 4)] for b in range(4)]
    for objects in one, other:
        random.Random(str(objects is one)).shuffle(batches)
        for batch in batches:
            store(objects, batch)
        merge_once(objects)
    assert keys(one) == keys(other)


def test_a_message_sent_twice_is_kept_twice() -> None:
    """Its two Kafka records may have other keys and headers; the very same record is kept once."""
    objects = MemoryObjects()
    store(objects, [growing(1, "O", NIGHT)])
    store(objects, [growing(1, "O", NIGHT) | {"offset": 7}])
    store(objects, [growing(1, "O", NIGHT), growing(2, "O", NIGHT)])
    merge_once(objects)
    merge_once(objects)
    kept = [(alert_id, offset) for alert_id, offset, *_ in stored_rows(objects)]
    assert kept == [(1, 1), (1, 7), (2, 2)]


def test_rows_that_only_claim_to_be_equal_are_both_kept() -> None:
    objects = MemoryObjects()
    for data in b"one", b"two":
        store(objects, [row(1, "O", NIGHT, 1, data)])
    merge_once(objects)
    merge_once(objects)
    assert sorted(packet for *_, packet in stored_rows(objects)) == [b"one", b"two"]


def test_a_damaged_pack_is_left_alone() -> None:
    objects = MemoryObjects()
    for number in range(1, 5):
        store(objects, [growing(number, "O", NIGHT)])
    damaged = keys(objects)[1]
    data = bytearray(objects.get(damaged))
    data[5000] ^= 1
    objects.put(damaged, bytes(data))
    [done] = merge_once(objects)
    assert done.merged == 3
    merge_once(objects)
    assert len(keys(objects)) == 2
    assert damaged in keys(objects)


def test_a_pack_without_a_run_is_merged_and_indexed() -> None:
    """The function stopped between the pack and its run."""
    objects = MemoryObjects()
    store(objects, [growing(1, "O", NIGHT)])
    pack = write_packets(
        pa.Table.from_pylist([growing(2, "O", NIGHT)], PACKET),
        [[growing(2, "O", NIGHT)["packet"]]],
        Coverage.of({(TOPIC, 0): [2]}),
    )
    objects.put(pack.key, pack.data)
    merge_once(objects)
    assert packets_of(objects)[2, 2] == growing(2, "O", NIGHT)["packet"]
    assert coverage(objects) == Coverage.of({(TOPIC, 0): [1, 2]})


def test_a_merged_pack_is_indexed_again_as_it_was() -> None:
    objects = MemoryObjects()
    for number in range(1, 4):
        store(objects, [growing(number, "O", NIGHT)])
    before, held = packets_of(objects), coverage(objects)
    merge_once(objects)
    merge_once(objects)
    for info in list(objects.list("tables/")):
        objects.delete(info.key)
    [key] = keys(objects)
    index(objects, key)
    assert (packets_of(objects), coverage(objects)) == (before, held)


def test_an_object_with_many_packets_has_pages_of_bounded_size() -> None:
    objects = MemoryObjects()
    for batch in range(4):
        store(objects, [growing(40 * batch + n, "O", NIGHT) for n in range(1, 31)])
    merge_once(objects)
    [key] = [key for key in keys(objects) if "merged" in key]
    found = pages.pages(pa.py_buffer(objects.get(key)), "packet")
    assert len(found) == 3
    for page in found:
        values = pages.values(objects.get(key, page.offset, page.length))
        assert sum(map(len, values)) < (4 << 20) + PAGE_BYTES


def test_coverage_says_nothing_of_offsets_that_two_topics_have() -> None:
    rows = pa.Table.from_pylist([growing(number, "O", NIGHT) for number in (1, 2, 3)], PACKET)
    held = Coverage.of({("alerts@a", 0): [1, 2], ("alerts@b", 0): [2, 3, 4], ("other@c", 0): [1]})
    assert coverage_of(rows, held) == Coverage.of({("alerts@a", 0): [1], ("alerts@b", 0): [3]})


# -- the protocol


OBJECTS = ("A", "B", "C", "D", "E")
alerts = st.lists(
    st.tuples(st.sampled_from(OBJECTS), st.integers(0, 3), st.integers(1, 30)),
    min_size=1,
    max_size=5,
    unique_by=lambda alert: alert[2],
)
moments = st.integers(0, 40)


class MergedPackets(RuleBasedStateMachine):
    """Batches, batches again, merges that overtake each other at any request, and crashes."""

    def __init__(self) -> None:
        super().__init__()
        self.ever: dict[str, bytes] = {}
        self.store = MemoryObjects(lambda: START)
        self.acknowledged: dict[int, dict] = {}
        self.offset = 0

    def batch(self, some: Sequence[tuple[str, int, int]]) -> list[dict]:
        made = []
        for object_id, night, number in some:
            known = self.acknowledged.get(number)
            if known is None:
                self.offset += 1
                data = np.random.default_rng(number).bytes(300)
                known = row(number, object_id, NIGHT + night, self.offset, data)
            made.append(known)
        return made

    @rule(some=alerts)
    def store_batch(self, some: Sequence[tuple[str, int, int]]) -> None:
        made = self.batch(some)
        store(self.store, made)
        self.acknowledged |= {each["alert_id"]: each for each in made}

    @rule(some=alerts, at=st.integers(1, 4), torn=st.booleans())
    def store_part_of_a_batch(
        self, some: Sequence[tuple[str, int, int]], at: int, torn: bool
    ) -> None:
        made = self.batch(some)
        try:
            store(Watched(self.store, crash_at=at, torn=torn), made)
        except StoreDown:
            return
        self.acknowledged |= {each["alert_id"]: each for each in made}

    @rule()
    def merge(self) -> None:
        merge_once(self.store)

    @rule(at=st.integers(1, 6), torn=st.booleans())
    def merge_partly(self, at: int, torn: bool) -> None:
        with suppress(StoreDown):
            merge_once(Watched(self.store, crash_at=at, torn=torn))

    @rule(at=moments, some=alerts)
    def store_during_a_merge(self, at: int, some: Sequence[tuple[str, int, int]]) -> None:
        merge_once(
            Watched(self.store, lambda number: self.store_batch(some) if number == at else None)
        )

    @rule(at=moments)
    def merge_during_a_merge(self, at: int) -> None:
        merge_once(
            Watched(self.store, lambda number: merge_once(self.store) if number == at else None)
        )

    @invariant()
    def nothing_is_lost(self) -> None:
        found = packets_of(self.store)
        assert {
            number: found[number, number] == each["packet"]
            for number, each in self.acknowledged.items()
        } == dict.fromkeys(self.acknowledged, True)
        held = {(number, offset) for number, offset, *_ in stored_rows(self.store)}
        assert {(n, each["offset"]) for n, each in self.acknowledged.items()} <= held
        offsets = {each["offset"] for each in self.acknowledged.values()}
        assert not Coverage.of({(TOPIC, 0): offsets}) - coverage(self.store)
        indexed = {(TOPIC, 0): [o for n, o in held if (n, n) in found]}
        assert not coverage(self.store) - Coverage.of(indexed)

    def teardown(self) -> None:
        for _ in range(20):
            merge_once(self.store)
        self.nothing_is_lost()
        assert set(merge_once(self.store)) <= {Merge()}


@pytest.fixture
def small(monkeypatch) -> None:
    monkeypatch.setattr(packet_merge, "UNPACKED_BYTES", 2_000)
    monkeypatch.setattr(packet_plan, "MOST_PACKS", 3)
    monkeypatch.setattr(packet_plan, "_pays", lambda group: len(group) > 1)


def run(machine: type[RuleBasedStateMachine], examples: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=12,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
            phases=[Phase.generate],  # to make a failure smaller takes minutes
        ),
    )


@pytest.mark.usefixtures("small")
def test_nothing_is_lost_whatever_stops_a_merge() -> None:
    run(MergedPackets, settings.default.max_examples // 4)


def _without_rank(monkeypatch) -> None:
    """Rows of merged packs do not win over those of the packs that they were merged of."""
    spec = PACKETS.__class__(
        PACKETS.name,
        PACKETS.schema,
        PACKETS.key,
        tuple(name for name in PACKETS.precedence if name != "merged"),
        PACKETS.ranges,
    )
    monkeypatch.setattr("tests.store.compaction.test_packet_merge.PACKETS", spec)


def _without_proof(monkeypatch) -> None:
    monkeypatch.setattr(Orphans, "proven", lambda self, key: True)
    monkeypatch.setattr(PacketMerger, "_winners", lambda *_: {"any"})


def _rows_before_packs(monkeypatch) -> None:
    made = PacketMerger._made

    def early(self: PacketMerger, needed: Sequence) -> Merge:
        for pack, held in self._packs(needed):
            self._table.append(pack.locations, held)
        return made(self, needed)

    monkeypatch.setattr(PacketMerger, "_made", early)


def _all_claimed(monkeypatch) -> None:
    monkeypatch.setattr(packet_merge, "coverage_of", lambda rows, held: held)


@pytest.mark.parametrize("bug", [_without_proof, _rows_before_packs])
@pytest.mark.usefixtures("small")
def test_the_campaign_finds_planted_faults(monkeypatch, bug) -> None:
    bug(monkeypatch)
    with pytest.raises(Exception):  # noqa: B017, PT011  # whatever a reader meets
        run(MergedPackets, 40)
