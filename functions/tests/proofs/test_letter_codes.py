"""Dead letters in the proof of a night: counted by status, without their data."""

import io
import random
from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from stampede.config.settings import Settings
from stampede.deadletters.dead_letter import write_letters
from stampede.deadletters.purge import purge
from stampede.deadletters.reader import DeadLetterReader
from stampede.events.cloudevents.event import Event
from stampede.proofs.letter_codes import LetterCodes
from stampede.proofs.night_proof import NightProof
from stampede.store.integrity.dead_letter_offsets import DeadLetterOffsets
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.open import open_objects
from tests.support.events.dead_letters import accept, event
from tests.support.proofs import alerts, bodies, prove, settings_in
from tests.support.store.stored_packets import store
from tests.support.store.watched_objects import BeforeGet, Watched

TABLE = "detections"


def letter(offset: int, code: str | None, topic: str = "alerts", data: bytes = b"x") -> Event:
    attributes = dict(event(offset, topic).attributes)
    del attributes["knativeerrorcode"]
    return Event(attributes | ({"knativeerrorcode": code} if code else {}), data)


def put(objects: Objects, *letters: Event) -> str:
    key, data = write_letters(TABLE, letters)
    objects.put(key, data)
    return key


def counts(objects: Objects, *offsets: int) -> dict[str, int]:
    letters = DeadLetterOffsets(objects)
    letters.of_table(TABLE)
    return LetterCodes(objects, letters, TABLE).counts(Coverage.of({("alerts", 0): offsets}))


def end_of_codes(data: bytes | bytearray) -> int:
    """Where the column of codes ends in an object."""
    group = pq.ParquetFile(io.BytesIO(data)).metadata.row_group(0)
    (chunk,) = (group.column(n) for n in range(9) if group.column(n).path_in_schema == "code")
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    return begin + chunk.total_compressed_size


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return settings_in(tmp_path)


def around_letters(settings: Settings) -> None:
    """Alerts of one survey; Kafka's offsets 10 to 19 are of none of them."""
    sent = bodies([each for each in alerts(90) if each.survey == "ztf"][:20])
    store(settings, sent[:10])
    store(settings, sent[10:], first=20)


def proven(settings: Settings) -> NightProof:
    """The proof of the only night."""
    (proof,) = prove(open_objects(settings))
    return proof


def test_letters_between_the_alerts_of_a_night_are_counted(settings: Settings) -> None:
    around_letters(settings)
    objects = open_objects(settings)
    put(objects, letter(10, "400"), letter(11, "400"), letter(12, "422", "alerts@0"))
    put(objects, letter(13, None), letter(14, "no such alert 123"), letter(15, "500"))
    put(objects, letter(15, "413"), letter(99, "400"), letter(16, "400", "other"))
    proof = proven(settings)
    assert proof.statement["dead_letters"] == {
        **{"400": 2, "413": 1, "422": 1, "no answer": 1, "other": 1}
    }
    assert sum(proof.dead_letters.values()) == len(proof.offsets("dead_lettered"))


def test_a_proof_without_letters_is_as_it_was(settings: Settings) -> None:
    around_letters(settings)
    proof = proven(settings)
    assert "dead_letters" not in proof.statement
    assert proof.dead_letters == {}


def test_the_same_letters_in_other_objects_give_the_same_proof(tmp_path: Path) -> None:
    letters = [letter(offset, code) for offset, code in ((10, "400"), (11, "422"), (11, "400"))]
    made = []
    for name, parts in (("one", [letters]), ("other", [letters[:1], letters[1:2], letters[2:]])):
        settings = settings_in(tmp_path / name)
        around_letters(settings)
        for part in parts:
            put(open_objects(settings), *part)
        made.append(proven(settings).data)
    assert made[0] == made[1]


def test_accepted_letters_count_as_before_when_they_are_purged(tmp_path: Path) -> None:
    made = []
    for name in ("as they were", "accepted", "purged"):
        settings = settings_in(tmp_path / name)
        around_letters(settings)
        objects = open_objects(settings)
        put(objects, letter(10, "400"), letter(11, "422"))
        put(objects, letter(12, "422"))
        if name != "as they were":
            accept(objects)
        if name == "purged":
            purge(objects, DeadLetterReader(objects), lambda _, some: [True] * len(some))
        made.append(proven(settings).data)
    assert made[0] == made[1] == made[2]


def test_the_data_of_letters_is_not_read() -> None:
    objects = MemoryObjects()
    chance = random.Random(1)
    put(objects, *(letter(n, "400", data=chance.randbytes(1 << 20)) for n in range(8)))
    put(objects, *(letter(n, "400") for n in range(100, 108)))
    watched = Watched(objects)
    assert counts(watched, *range(8)) == {"400": 8}
    assert watched.got < 1 << 18


def test_letters_that_cannot_be_read_are_counted_so(settings: Settings) -> None:
    around_letters(settings)
    objects = open_objects(settings)
    put(objects, letter(10, "400"))
    key = put(objects, letter(11, "422"), letter(12, "422"))
    data = bytearray(objects.get(key))
    data[end_of_codes(data) - 1] ^= 1  # the footer still says the offsets
    objects.put(key, bytes(data))
    assert proven(settings).dead_letters == {"400": 1, "unread": 2}


def test_letters_that_move_meanwhile_are_counted() -> None:
    objects = MemoryObjects()
    put(objects, letter(1, "400"), letter(2, "422"))

    def is_first(table: str, some: Sequence[Event]) -> list[bool]:
        return [each.position is not None and each.position.offset == 1 for each in some]

    def without_the_first(key: str, start: int) -> None:
        purge(objects, DeadLetterReader(objects), is_first)

    letters = DeadLetterOffsets(objects)
    letters.of_table(TABLE)
    moved = BeforeGet(objects, without_the_first)
    codes = LetterCodes(moved, letters, TABLE)
    assert codes.counts(Coverage.of({("alerts", 0): [1, 2]})) == {"422": 1, "unread": 1}
