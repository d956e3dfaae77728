"""received = stored + dead-lettered, or the missing offsets are named."""

import random
import time

import pyarrow as pa
import pytest

from stampede.errors import Damaged
from stampede.events.cloudevents.event import Event, Position, coverage_of_positions
from stampede.handlers.deadletters import write_letters
from stampede.store.integrity import ledger
from stampede.store.integrity.dead_letter_offsets import DeadLetterOffsets, dead_lettered
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import TABLES
from stampede.store.tables.table import Table
from tests.support.store.watched_objects import Watched

TOPIC = "alerts"


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


def covering(**partitions: list[int]) -> Coverage:
    """``covering(p0=[1, 2])``: offsets 1 and 2 of partition 0."""
    return Coverage.of({(TOPIC, int(name[1:])): offsets for name, offsets in partitions.items()})


def store(objects: MemoryObjects, table: str, coverage: Coverage) -> None:
    """Store a run without rows; only its coverage matters here."""
    empty = pa.Table.from_pylist([], schema=TABLES[table].schema)
    Table(objects, TABLES[table]).append(empty, coverage)


def letter(offset: int, partition: int = 0, size: int = 10) -> Event:
    place = {"subject": f"partition:{partition}#{offset}", "source": f"x#{TOPIC}"}
    return Event({"id": f"{partition}/{offset}", **place}, random.Random(offset).randbytes(size))


def store_dead(objects: MemoryObjects, table: str, *letters: Event) -> None:
    objects.put(*write_letters(table, letters))


def account(stored: Coverage | None = None, dead: Coverage | None = None) -> ledger.Account:
    return ledger.Account(stored or Coverage(), dead or Coverage())


def test_an_empty_store_accounts_for_nothing(objects) -> None:
    assert ledger.accounts(objects) == {name: account() for name in TABLES}
    assert ledger.entries(ledger.accounts(objects)) == []


def test_each_table_has_an_account_of_its_own(objects) -> None:
    store(objects, "cutouts", covering(p0=[0, 1, 2]))
    store(objects, "cutouts", covering(p0=[3], p1=[7]))
    store(objects, "detections", covering(p0=[0, 1]))
    store_dead(objects, "detections", letter(2), letter(3))
    store_dead(objects, "detections", letter(7, partition=1))
    assert ledger.accounts(objects) == {
        "cutouts": account(covering(p0=[0, 1, 2, 3], p1=[7])),
        "detections": account(covering(p0=[0, 1]), covering(p0=[2, 3], p1=[7])),
    }
    assert all(not entry.missing for entry in ledger.entries(ledger.accounts(objects)))


def test_the_offset_of_a_dead_letter_of_any_size_is_read(objects) -> None:
    """Only the end of the object is read, unless the footer is longer than that."""
    store_dead(objects, "cutouts", letter(1, size=3_000_000))
    assert dead_lettered(objects, "cutouts") == covering(p0=[1])
    # Every second offset: thousands of intervals make a long footer.
    store_dead(objects, "cutouts", *(letter(offset, size=1) for offset in range(0, 6000, 2)))
    assert len(dead_lettered(objects, "cutouts")) == 3001


def test_the_offsets_of_an_object_are_read_once(objects) -> None:
    for offset in range(20):
        store_dead(objects, "cutouts", letter(offset))
    watched = Watched(objects)
    offsets = DeadLetterOffsets(watched)
    assert offsets.of_table("cutouts") == covering(p0=list(range(20)))
    assert watched.count("get") == 20
    store_dead(objects, "cutouts", letter(20))
    objects.delete(next(objects.list("deadletters/cutouts/")).key)
    assert len(offsets.of_table("cutouts")) == 20
    assert watched.count("get") == 21


def test_the_same_letters_make_the_same_object(objects) -> None:
    letters = [letter(offset) for offset in range(20)]
    store_dead(objects, "cutouts", *letters)
    store_dead(objects, "cutouts", *reversed(letters))
    assert len(list(objects.list("deadletters/cutouts/"))) == 1


def lines(found: dict, known: dict | None = None) -> dict:
    return {(each.table, each.topic, each.partition): each for each in ledger.entries(found, known)}


def test_missing_intervals_are_named() -> None:
    found = {"cutouts": account(covering(p0=[0, 1, 5, 9]), covering(p0=[2]))}
    entry = lines(found, {(TOPIC, 0): (0, 12)})["cutouts", TOPIC, 0]
    assert entry.missing == [(3, 5), (6, 9), (10, 12)]
    assert entry.missing_count == 7
    assert (entry.stored, entry.dead_lettered) == (4, 1)
    assert entry.high - entry.low == entry.stored + entry.dead_lettered + entry.missing_count


def test_an_offset_that_is_both_counts_once() -> None:
    """A dead letter that was replayed with success."""
    found = {"cutouts": account(covering(p0=[0, 1]), covering(p0=[1, 2]))}
    entry = lines(found, {(TOPIC, 0): (0, 3)})["cutouts", TOPIC, 0]
    assert (entry.stored, entry.dead_lettered, entry.missing) == (2, 1, [])


def test_a_partition_that_no_table_has_is_missing_as_a_whole() -> None:
    found = {"cutouts": account(covering(p0=[0])), "detections": account()}
    known = {(TOPIC, 0): (0, 1), (TOPIC, 1): (0, 5), ("other", 0): (3, 3)}
    entries = lines(found, known)
    assert len(entries) == 6
    assert entries["cutouts", TOPIC, 1].missing == [(0, 5)]
    assert entries["detections", TOPIC, 0].missing == [(0, 1)]
    assert entries["detections", "other", 0].missing == []


def test_one_table_shows_what_the_other_lacks() -> None:
    """Without Kafka, an offset is known to exist when any table has it."""
    found = {
        "cutouts": account(covering(p0=[3, 4, 5, 6])),
        "detections": account(covering(p0=[4]), covering(p0=[6])),
    }
    entries = lines(found)
    assert entries["cutouts", TOPIC, 0].missing == []
    assert entries["detections", TOPIC, 0].missing == [(3, 4), (5, 6)]
    assert (entries["detections", TOPIC, 0].low, entries["detections", TOPIC, 0].high) == (3, 7)


def test_offsets_that_kafka_deleted_are_still_expected() -> None:
    """Retention moved Kafka's low watermark to 100; 50 was stored, so 51 to 99 existed."""
    found = {"cutouts": account(covering(p0=[50, *range(100, 110)]))}
    entry = lines(found, {(TOPIC, 0): (100, 110)})["cutouts", TOPIC, 0]
    assert (entry.low, entry.high) == (50, 110)
    assert entry.missing == [(51, 100)]


def test_offsets_that_kafka_deleted_before_the_first_run_are_not_expected() -> None:
    found = {"cutouts": account(covering(p0=[100, 101]))}
    assert not lines(found, {(TOPIC, 0): (100, 102)})["cutouts", TOPIC, 0].missing


def test_offsets_above_the_high_watermark_are_not_missing() -> None:
    found = {
        "cutouts": account(covering(p0=[0, 1, 2])),
        "detections": account(covering(p0=[0, 1])),
    }
    entries = lines(found, {(TOPIC, 0): (0, 2)})
    assert not entries["detections", TOPIC, 0].missing


def test_what_the_source_skipped_is_not_missing(objects) -> None:
    positions = [Position(f"{TOPIC}@id", 0, offset) for offset in (0, 1, 5)]
    for table in TABLES:
        store(objects, table, coverage_of_positions(positions, [0, 0, 3]))
    for entry in ledger.entries(ledger.accounts(objects)):
        assert (entry.topic, entry.topic_id, entry.missing) == (TOPIC, "id", [])
        assert (entry.received, entry.stored, entry.not_messages) == (3, 3, 3)


def test_expected_counts_of_files_are_recorded(objects) -> None:
    ledger.expect(objects, "files-night-1234", 17)
    ledger.expect(objects, "files-night-1234", 17)
    ledger.expect(objects, "files-other-1234", 3)
    assert ledger.expected(objects) == {
        ("files-night-1234", 0): (0, 17),
        ("files-other-1234", 0): (0, 3),
    }


@pytest.mark.parametrize(
    "data", [b"", b"garbage" * 9, b"PAR1" * 3], ids=["empty", "garbage", "short"]
)
def test_damaged_objects_of_dead_letters_cost_only_themselves(data: bytes) -> None:
    objects = MemoryObjects()
    store_dead(objects, "cutouts", letter(1))
    [key] = [info.key for info in objects.list("deadletters/")]
    bad = "deadletters/cutouts/" + "ef" * 16 + ".parquet"
    objects.put(bad, data)
    accounts = ledger.accounts(objects)
    assert accounts["cutouts"].dead_lettered == covering(p0=[1])
    assert list(accounts["cutouts"].quarantined) == [bad]
    assert accounts["detections"].quarantined == {}
    objects.put(key, objects.get(key)[:-1])
    assert set(ledger.accounts(objects)["cutouts"].quarantined) == {key, bad}


def test_a_damaged_number_of_expected_alerts_is_named() -> None:
    objects = MemoryObjects()
    ledger.expect(objects, "files", 12)
    objects.put("expected/other", b"\x00")
    with pytest.raises(Damaged, match="expected/other"):
        ledger.expected(objects)
    quarantined: dict[str, str] = {}
    assert ledger.expected(objects, quarantined) == {("files", 0): (0, 12)}
    assert list(quarantined) == ["expected/other"]


def test_an_expected_number_that_is_damaged_is_named() -> None:
    objects = MemoryObjects()
    for damaged in (b"", b"1_0", b"-1", b"12\0", b"9" * 5000):
        objects.put("expected/files-1", damaged)
        with pytest.raises(Damaged, match="expected/files-1 does not hold a number"):
            ledger.expected(objects)


def test_no_part_and_no_flipped_bit_of_an_expected_number_passes_for_a_number() -> None:
    objects = MemoryObjects()
    ledger.expect(objects, "files-1", 12)
    stored = objects.get("expected/files-1")
    parts = [stored[:size] for size in range(len(stored))]
    flips = [
        bytes(byte ^ (1 << bit) if at == place else byte for at, byte in enumerate(stored))
        for place in range(len(stored))
        for bit in range(8)
    ]
    for damaged in parts + flips:
        objects.put("expected/files-1", damaged)
        with pytest.raises(Damaged, match="expected/files-1"):
            ledger.expected(objects)
    objects.put("expected/files-1", b"12")  # of an earlier version
    assert ledger.expected(objects) == {("files-1", 0): (0, 12)}


def test_a_year_of_nights_takes_each_offset_once() -> None:
    """365 topics of 16 partitions: uniting their offsets anew for each entry would take minutes."""
    spans = {(f"ztf_{day}@{day}", number): [0, 1, 3] for day in range(365) for number in range(16)}
    by_table = {name: account(Coverage.of(spans)) for name in ("cutouts", "detections")}
    begin = time.process_time()
    made = ledger.entries(by_table)
    seconds = time.process_time() - begin
    assert len(made) == 2 * 365 * 16
    assert all(entry.missing == [(2, 3)] and entry.stored == 3 for entry in made)
    assert seconds < 5  # 0.3 s here; 425 s if it were quadratic
