"""Reading dead letters: what is read, and what is skipped and named."""

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from stampede.deadletters.dead_letter import DeadLetter, write_letters
from stampede.deadletters.display import short
from stampede.deadletters.purge import Purged, purge
from stampede.deadletters.reader import DeadLetterFilter, DeadLetterReader
from stampede.errors import Damaged, NotFound, SetupError
from stampede.events.cloudevents.event import Event
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.parquet.checksums import write
from stampede.store.runs.run_name import digest
from tests.support.events.dead_letters import event, ids, put_letters, put_run
from tests.support.store.watched_objects import BeforeGet, Failing


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


def test_the_newest_object_first_then_by_offset_each_letter_once(tmp_path: Path) -> None:
    objects = DirectoryObjects(tmp_path)
    put_letters(objects, event(2), event(11), event(1))
    put_letters(objects, event(2, reason="later"), event(300), event(None), table="detections")
    put_letters(objects, event(11), event(0))
    assert ids(objects, "cutouts") == [f"cutouts/alerts/0/{n}" for n in (0, 11, 1, 2)]
    *others, nowhere = ids(objects, "detections")
    assert others == ["detections/alerts/0/2", "detections/alerts/0/300"]
    assert ids(objects, None, frozenset([nowhere])) == [nowhere]
    assert ids(objects, None, None, "LATER") == others[:1]
    assert len(ids(objects)) == 7


def test_a_topic_created_again_hides_no_letter(objects) -> None:
    put_letters(objects, event(1))
    put_letters(objects, Event(event(1).attributes, b"another alert"))
    assert ids(objects) == ["cutouts/alerts/0/1"] * 2


def test_a_letter_is_what_was_sent(objects) -> None:
    put_letters(objects, event(5))
    (letter,) = DeadLetterReader(objects).letters()
    assert isinstance(letter, DeadLetter)
    assert (letter.data, letter.code, letter.reason) == (event(5).data, "400", "no alert")
    assert letter.attributes == event(5).attributes
    assert letter.headers() == {
        **{"ce-specversion": "1.0", "ce-type": "t", "ce-id": "5", "ce-source": "x#alerts"},
        "ce-subject": "partition:0#5",
    }


def test_one_letter_needs_the_footers_and_one_object() -> None:
    read_from_start: list[str] = []

    def record(key: str, start: int) -> None:
        if start == 0:
            read_from_start.append(key)

    objects = BeforeGet(MemoryObjects(), record)
    keys = [
        put_letters(
            objects, *(Event(e.attributes, random.randbytes(20_000)) for e in map(event, batch))
        )
        for batch in (range(n, n + 3) for n in range(0, 30, 3))
    ]
    assert ids(objects, None, frozenset(["cutouts/alerts/0/13"])) == ["cutouts/alerts/0/13"]
    assert read_from_start == [keys[4]]


def damaged_objects() -> Iterator[tuple[str, bytes, str]]:
    """Key, bytes, and the error that names the object."""
    key, data = write_letters("cutouts", [event(1)])
    yield key, data[:-1], "does not read as it was stored"
    yield "deadletters/cutouts/notes.txt", b"", "is not the key of an object"
    yield "deadletters/nights/" + key[-40:], data, "is not the key of an object"
    yield f"deadletters/cutouts/{digest(b'x')}.parquet", b"x", "is not a Parquet file"
    other = write(pa.table({"a": [1]})).to_pybytes()
    yield f"deadletters/cutouts/{digest(other)}.parquet", other, "does not have the columns"


@pytest.mark.parametrize(("key", "data", "message"), list(damaged_objects()))
def test_a_damaged_object_is_named_and_hides_no_other(objects, key: str, data: bytes, message: str):
    put_letters(objects, event(7))
    put_run(objects, 7)
    objects.put(key, data)
    for choice in (DeadLetterFilter(), DeadLetterFilter(ids=frozenset(["cutouts/alerts/0/7"]))):
        reader = DeadLetterReader(objects, choice)
        assert [letter.id for letter in reader.letters()] == ["cutouts/alerts/0/7"]
        with pytest.raises(Damaged, match=f"{key}.* {message}"):
            reader.check()
    reader = DeadLetterReader(objects)
    assert purge(objects, reader, lambda _, events: [True] * len(events)) == Purged(1, 0)
    assert [info.key for info in objects.list("deadletters/")] == [key]


def test_an_object_deleted_since_the_listing_hides_no_other(objects) -> None:
    key, other = put_letters(objects, event(1)), put_letters(objects, event(2))
    reader = DeadLetterReader(objects)
    objects.delete(key)
    assert [letter.object.key for letter in reader.letters()] == [other]
    reader.check()


def test_an_object_that_is_listed_and_not_there_is_named(objects) -> None:
    key, other = put_letters(objects, event(1)), put_letters(objects, event(2))
    reader = DeadLetterReader(Failing(objects, NotFound, lambda name, _: name == key))
    assert [letter.object.key for letter in reader.letters()] == [other]
    with pytest.raises(Damaged, match=key):
        reader.check()


def test_unknown_and_impossible_ids(objects) -> None:
    put_letters(objects, event(1))
    reader = DeadLetterReader(
        objects, DeadLetterFilter(ids=frozenset(["cutouts/alerts/0/1", "cutouts/alerts/0/2"]))
    )
    assert len(list(reader.letters())) == 1
    with pytest.raises(NotFound, match=r"there is no dead letter cutouts/alerts/0/2$"):
        reader.check()
    for wrong in ("cutouts", "nights/alerts/0/1", "cutouts/alerts/0/x", "cutouts/a/0/1/2", ""):
        with pytest.raises(SetupError, match="not a dead letter's id"):
            DeadLetterReader(objects, DeadLetterFilter(ids=frozenset([wrong])))


def test_a_list_shows_where_a_letter_is_and_both_ends_of_its_reason() -> None:
    assert short("no alert", "a.tar:b.avro[3]") == "a.tar:b.avro[3]: no alert"
    assert short("a.avro: no alert", "a.avro") == "a.avro: no alert"
    long = "the bytes do not fit: " + "x" * 1000 + " the fault"
    assert len(short(long)) <= 400
    assert short(long).startswith("the bytes do not fit: x")
    assert short(long).endswith("x the fault")
