"""Dead letters in a store: what is read, what is left out and named, what a purge leaves."""

import asyncio
import io
import itertools
import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stampede.deadletters.dead_letter import DeadLetter, write_letters
from stampede.deadletters.purge import Purged, purge
from stampede.deadletters.reader import (
    DeadLetterFilter,
    DeadLetterReader,
    is_stored,
    stored_offsets,
)
from stampede.deadletters.replay import Room
from stampede.errors import Damaged, NotFound, SetupError, StoreDown
from stampede.events.event import Event
from stampede.store import ledger
from stampede.store.coverage import Coverage
from stampede.store.directory import DirectoryObjects
from stampede.store.memory import MemoryObjects
from stampede.store.objects import ObjectInfo, Objects
from stampede.store.runs import digest
from stampede.store.schema import TABLES
from stampede.store.tables import Table


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


def event(offset: int | None, topic: str = "alerts", reason: str = "no alert") -> Event:
    attributes = {"specversion": "1.0", "type": "t", "id": str(offset), "source": f"x#{topic}"}
    if offset is not None:
        attributes["subject"] = f"partition:0#{offset}"
    attributes |= {"knativeerrorcode": "400", "knativeerrordata": reason}
    return Event(attributes, random.Random(offset).randbytes(20))


def bury(objects: Objects, *events: Event, table: str = "cutouts") -> str:
    key, data = write_letters(table, events)
    objects.put(key, data)
    return key


def store(objects: Objects, *offsets: int, table: str = "cutouts") -> None:
    """A run without rows: its coverage is what counts here."""
    rows = pa.Table.from_pylist([], schema=TABLES[table].schema)
    Table(objects, TABLES[table]).append(rows, Coverage.of({("alerts", 0): offsets}))


def ids(objects: Objects, *choice: object) -> list[str]:
    shelf = DeadLetterReader(objects, DeadLetterFilter(*choice))  # type: ignore[arg-type]
    return [letter.id for letter in shelf.letters()]


def purge_stored(objects: Objects) -> Purged:
    stored = stored_offsets(objects)
    shelf = DeadLetterReader(objects)
    done = purge(objects, shelf, lambda *at: is_stored(stored, *at))
    shelf.check()
    return done


def test_the_newest_first_then_by_offset_each_once(tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path)
    bury(objects, event(2), event(11), event(1))
    bury(objects, event(2, reason="later"), event(300), event(None), table="detections")
    bury(objects, event(11), event(0))
    assert ids(objects, "cutouts") == [f"cutouts/alerts/0/{n}" for n in (0, 11, 1, 2)]
    *others, nowhere = ids(objects, "detections")
    assert others == ["detections/alerts/0/2", "detections/alerts/0/300"]
    assert ids(objects, None, frozenset([nowhere])) == [nowhere]
    assert ids(objects, None, None, "LATER") == others[:1]
    assert len(ids(objects)) == 7


def test_a_topic_made_anew_hides_no_letter(objects) -> None:
    bury(objects, event(1))
    bury(objects, Event(event(1).attributes, b"another alert"))
    assert ids(objects) == ["cutouts/alerts/0/1"] * 2


def test_a_letter_is_what_was_sent(objects) -> None:
    bury(objects, event(5))
    (letter,) = DeadLetterReader(objects).letters()
    assert isinstance(letter, DeadLetter)
    assert (letter.data, letter.code, letter.reason) == (event(5).data, "400", "no alert")
    assert letter.attributes == event(5).attributes
    assert letter.headers() == {
        **{"ce-specversion": "1.0", "ce-type": "t", "ce-id": "5", "ce-source": "x#alerts"},
        "ce-subject": "partition:0#5",
    }


class Counting(MemoryObjects):
    """Knows what was read from its beginning."""

    def __init__(self) -> None:
        super().__init__()
        self.whole: list[str] = []

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if start == 0:
            self.whole.append(key)
        return super().get(key, start, length)


def test_for_one_letter_footers_are_read_and_one_object() -> None:
    objects = Counting()
    keys = [
        bury(objects, *(Event(e.attributes, random.randbytes(20_000)) for e in map(event, some)))
        for some in (range(n, n + 3) for n in range(0, 30, 3))
    ]
    assert ids(objects, None, frozenset(["cutouts/alerts/0/13"])) == ["cutouts/alerts/0/13"]
    assert objects.whole == [keys[4]]


def odd_objects() -> Iterator[tuple[str, bytes, str]]:
    """Key, bytes and what is said of it."""
    key, data = write_letters("cutouts", [event(1)])
    yield key, data[:-1], "does not read as it was stored"
    yield "deadletters/cutouts/notes.txt", b"", "has not the name"
    yield "deadletters/nights/" + key[-40:], data, "has not the name"
    yield f"deadletters/cutouts/{digest(b'x')}.parquet", b"x", "is no Parquet file"
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1]}), sink)
    name = digest(sink.getvalue())
    yield f"deadletters/cutouts/{name}.parquet", sink.getvalue(), "has not the columns"


@pytest.mark.parametrize(("key", "data", "said"), list(odd_objects()))
def test_an_odd_object_is_named_and_hides_no_other(objects, key: str, data: bytes, said: str):
    bury(objects, event(7))
    store(objects, 7)
    objects.put(key, data)
    for choice in (DeadLetterFilter(), DeadLetterFilter(ids=frozenset(["cutouts/alerts/0/7"]))):
        shelf = DeadLetterReader(objects, choice)
        assert [letter.id for letter in shelf.letters()] == ["cutouts/alerts/0/7"]
        with pytest.raises(Damaged, match=f"{key}.* {said}"):
            shelf.check()
    shelf = DeadLetterReader(objects)
    assert purge(objects, shelf, lambda *at: True) == Purged(1, 0)
    assert [info.key for info in objects.list("deadletters/")] == [key]


def test_an_object_that_is_gone_meanwhile_is_named(objects) -> None:
    key, other = bury(objects, event(1)), bury(objects, event(2))
    shelf = DeadLetterReader(objects)
    objects.delete(key)
    assert [letter.object.key for letter in shelf.letters()] == [other]
    with pytest.raises(Damaged, match=key):
        shelf.check()


def test_ids_that_there_are_not(objects) -> None:
    bury(objects, event(1))
    shelf = DeadLetterReader(
        objects, DeadLetterFilter(ids=frozenset(["cutouts/alerts/0/1", "cutouts/alerts/0/2"]))
    )
    assert len(list(shelf.letters())) == 1
    with pytest.raises(NotFound, match=r"there is no dead letter cutouts/alerts/0/2$"):
        shelf.check()
    for wrong in ("cutouts", "nights/alerts/0/1", "cutouts/alerts/0/x", "cutouts/a/0/1/2", ""):
        with pytest.raises(SetupError, match="not a dead letter's id"):
            DeadLetterReader(objects, DeadLetterFilter(ids=frozenset([wrong])))


def test_a_purge_removes_what_is_stored_and_no_more(objects) -> None:
    whole = bury(objects, event(1), event(2))
    part = bury(objects, event(3), event(4), event(None))
    none = bury(objects, event(5))
    other = bury(objects, event(1), table="detections")
    store(objects, 1, 2, 3)
    before = ledger.entries(ledger.accounts(objects))
    assert purge_stored(objects) == Purged(3, 4)
    assert ledger.entries(ledger.accounts(objects)) == before
    assert ledger.dead_lettered(objects, "cutouts").intervals("alerts", 0) == [(4, 6)]
    keys = {info.key for info in objects.list("deadletters/")}
    assert {whole, part} & keys == set()
    assert {none, other} < keys
    assert len(keys) == 3
    left = {letter.id: letter for letter in DeadLetterReader(objects).letters()}
    assert left["cutouts/alerts/0/4"].data == event(4).data
    assert left["cutouts/alerts/0/4"].attributes == event(4).attributes
    assert purge_stored(objects) == Purged(0, 4)
    assert {info.key for info in objects.list("deadletters/")} == keys


class Dying(MemoryObjects):
    """Fails at a call, as where the process is killed just before it."""

    def __init__(self) -> None:
        super().__init__()
        self.calls_left = 1 << 30

    def _call(self) -> None:
        self.calls_left -= 1
        if self.calls_left < 0:
            raise StoreDown("killed")

    def put(self, key: str, data: bytes | memoryview) -> None:
        self._call()
        super().put(key, data)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        self._call()
        return super().get(key, start, length)

    def delete(self, key: str) -> None:
        self._call()
        super().delete(key)


@given(
    st.lists(st.sets(st.integers(0, 12), min_size=1), min_size=1, max_size=5),
    st.sets(st.integers(0, 12)),
    st.integers(0, 12),
)
def test_a_purge_that_dies_anywhere_loses_nothing(
    batches: list[set[int]], done: set[int], calls: int
) -> None:
    objects = Dying()
    for batch in batches:
        bury(objects, *map(event, batch))
    store(objects, *done)
    before = ledger.entries(ledger.accounts(objects))
    stays = {f"cutouts/alerts/0/{n}" for n in set().union(*batches) - done}
    stored = stored_offsets(objects)
    shelf = DeadLetterReader(objects)
    objects.calls_left = calls
    try:
        purge(objects, shelf, lambda *at: is_stored(stored, *at))
    except StoreDown:
        objects.calls_left = 1 << 30
        assert ledger.entries(ledger.accounts(objects)) == before
        assert stays <= set(ids(objects))
    objects.calls_left = 1 << 30
    purge_stored(objects)
    assert set(ids(objects)) == stays
    assert ledger.entries(ledger.accounts(objects)) == before


class Purging(MemoryObjects):
    """Is purged while it is listed: when a listing has come to `at`, and before it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.at = -1

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        key = after
        for number in itertools.count():
            if number == self.at and prefix.startswith("deadletters/"):
                self.at = -1
                purge(
                    self,
                    DeadLetterReader(self),
                    lambda _, place: place is not None and place.offset < 9,
                )
            info = next(super().list(prefix, key), None)
            if info is None:
                return
            yield info
            key = info.key


@pytest.mark.parametrize("at", range(7))
def test_the_ledger_misses_nothing_during_a_purge(at: int) -> None:
    objects = Purging()
    for n in range(6):
        bury(objects, event(n), event(10 + n), event(20 + n))
    objects.at = at
    held = ledger.dead_lettered(objects, "cutouts")
    assert objects.at == -1
    assert set(range(10, 16)) | set(range(20, 26)) <= {
        n for start, end in held.intervals("alerts", 0) for n in range(start, end)
    }


def test_what_does_not_read_as_it_was_written_deletes_nothing() -> None:
    class Lying(MemoryObjects):
        def put(self, key: str, data: bytes | memoryview) -> None:
            super().put(key, bytes(data[:-1]) if lying else data)

    lying, objects = False, Lying()
    key = bury(objects, event(1), event(2))
    store(objects, 1)
    lying = True
    with pytest.raises(StoreDown, match="nothing was deleted"):
        purge_stored(objects)
    infos: list[ObjectInfo] = list(objects.list(key))
    assert len(infos) == 1


def test_room_is_bounded_in_letters_and_bytes_but_takes_any_one() -> None:
    async def run() -> None:
        room, inside = Room(2, 100), []
        doors = {name: asyncio.Event() for name in ("huge", "a", "b", "c", "d")}
        takers = []

        async def take(name: str, size: int) -> None:
            await room.enter(size)
            inside.append(name)
            await doors[name].wait()
            inside.remove(name)
            await room.leave(size)

        async def comes(name: str, size: int) -> list[str]:
            takers.append(asyncio.ensure_future(take(name, size)))
            return await settled()

        async def goes(name: str) -> list[str]:
            doors[name].set()
            return await settled()

        async def settled() -> list[str]:
            for _ in range(50):
                await asyncio.sleep(0)
            return list(inside)

        assert await comes("huge", 1000) == ["huge"]  # larger than the room, but it is empty
        assert await comes("a", 60) == ["huge"]
        assert await goes("huge") == ["a"]
        assert await comes("b", 60) == ["a"]  # too many bytes together
        assert await goes("a") == ["b"]
        assert await comes("c", 40) == ["b", "c"]
        assert await comes("d", 0) == ["b", "c"]  # too many letters
        assert await goes("b") == ["c", "d"]
        await goes("c")
        await goes("d")
        await room.empty()
        await asyncio.gather(*takers)

    asyncio.run(run())
