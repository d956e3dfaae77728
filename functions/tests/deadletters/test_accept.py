"""Accepted letters are told apart, and nothing that becomes of them makes an offset missing."""

import asyncio
import random
from collections.abc import Sequence
from unittest.mock import patch

import pytest
from hypothesis import settings as examples
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from stampede.config.settings import Settings
from stampede.deadletters import dead_letter, merge
from stampede.deadletters.accept import Acceptances
from stampede.deadletters.dead_letter import NAMED_LETTERS, name_of
from stampede.deadletters.display import replay_report
from stampede.deadletters.purge import purge
from stampede.deadletters.reader import DeadLetterReader
from stampede.deadletters.replay import Replayed, replay
from stampede.deadletters.stored import NOTHING_STORED, StoredAlerts, stored_offsets
from stampede.errors import NotFound, SetupError, StampedeError, StoreDown
from stampede.events.cloudevents.event import Event
from stampede.store.integrity import ledger
from stampede.store.integrity.acceptances.decision import ACCEPTED
from stampede.store.integrity.dead_letter_offsets import DeadLetterOffsets
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import TABLES
from stampede.store.tables.table import Table
from tests.support.events.dead_letters import accept, event, put_letters
from tests.support.store.watched_objects import Changed, Watched

OFFSETS, VERSIONS = 1, 1
Letter = tuple[int, int]
"""An offset, and the number of other bytes with that offset."""


def made(letter: Letter) -> Event:
    return Event(event(letter[0]).attributes, b"%d %d" % letter)


def letter_of(event: Event) -> Letter:
    offset, version = event.data.split()
    return int(offset), int(version)


def offsets(coverage: Coverage) -> set[int]:
    return {n for low, high in coverage.intervals("alerts", 0) for n in range(low, high)}


def decisions(objects: Objects) -> list[str]:
    return [info.key for info in objects.list(ACCEPTED)]


def accounts(objects: Objects, table: str = "cutouts") -> tuple[set[int], set[int], set[int]]:
    """The offsets that are stored, refused, and refused and accepted."""
    account = ledger.accounts(objects)[table]
    assert not account.quarantined
    accepted = account.accepted_alone
    return offsets(account.stored), offsets(account.dead_alone - accepted), offsets(accepted)


class Letters(RuleBasedStateMachine):
    """Operators, functions and a copier do what they like; the ledger is what an oracle says."""

    def __init__(self) -> None:
        super().__init__()
        self.objects, self.second = MemoryObjects(), MemoryObjects()
        self.letters: set[Letter] = set()
        self.accepted: set[Letter] = set()
        self.stored: set[Letter] = set()
        self.copied: set[Letter] = set()
        self.known = DeadLetterOffsets(self.objects)

    def stored_alerts(self) -> StoredAlerts:
        def check(table: str, events: Sequence[Event]) -> list[StampedeError | None]:
            return [None if letter_of(each) in self.stored else NotFound("") for each in events]

        return StoredAlerts(stored_offsets(self.objects), check)

    @rule(new=st.sets(st.tuples(st.integers(0, OFFSETS), st.integers(0, VERSIONS)), min_size=1))
    def refuse(self, new: set[Letter]) -> None:
        put_letters(self.objects, *map(made, sorted(new)))
        self.letters |= new

    @rule(offset=st.integers(0, OFFSETS), undo=st.booleans(), reason=st.sampled_from(["", "x"]))
    def decide(self, offset: int, undo: bool, reason: str) -> None:
        name = f"cutouts/alerts/0/{offset}"
        stored = self.stored_alerts()
        before = decisions(self.objects)
        selected = accept(self.objects, name, undo=undo, reason=reason, stored=stored)
        here = {letter for letter in self.letters if letter[0] == offset}
        changing = here & self.accepted if undo else here - self.accepted - self.stored
        assert selected.count == len(changing)
        assert len(decisions(self.objects)) == len(before) + bool(changing)
        self.accepted = self.accepted - changing if undo else self.accepted | changing

    @rule()
    def accept_all(self) -> None:
        accept(self.objects, stored=self.stored_alerts())
        self.accepted |= self.letters - self.stored

    @precondition(lambda self: self.letters)
    @rule(data=st.data())
    def replay(self, data: st.DataObject) -> None:
        letter = data.draw(st.sampled_from(sorted(self.letters)))
        if letter[0] not in {offset for offset, _ in self.stored}:
            self.stored.add(letter)
            rows = TABLES["cutouts"].schema.empty_table()
            coverage = Coverage.of({("alerts", 0): [letter[0]]})
            Table(self.objects, TABLES["cutouts"]).append(rows, coverage)

    @rule(of_accepted=st.booleans())
    def purge(self, of_accepted: bool) -> None:
        stored, acceptances = self.stored_alerts(), Acceptances(self.objects)

        def goes(table: str, events: Sequence[Event]) -> list[bool]:
            return [
                whether.stored or (of_accepted and acceptances.has(table, name_of(table, each)))
                for each, whether in zip(events, stored.of_events(table, events), strict=True)
            ]

        purge(self.objects, DeadLetterReader(self.objects), goes)
        self.letters -= self.stored | (self.accepted if of_accepted else set())

    @rule()
    def merge(self) -> None:
        with patch.object(merge, "MOST_OBJECTS", 1):
            merge.merge_letters(self.objects, "cutouts")

    @rule(order=st.randoms(use_true_random=False))
    def copy(self, order) -> None:
        """Objects come to the second site in any order; none is deleted there."""
        keys = [info.key for info in self.objects.list("")]
        order.shuffle(keys)
        for key in keys:
            self.second.put(key, self.objects.get(key))
        self.copied |= self.letters
        assert accounts(self.second) == self.expected(self.copied)

    def expected(self, letters: set[Letter]) -> tuple[set[int], set[int], set[int]]:
        stored = {offset for offset, _ in self.stored}
        dead = {offset for offset, _ in letters | self.accepted} - stored
        refused = {offset for offset, _ in letters - self.accepted}
        return stored, dead & refused, dead - refused

    @invariant()
    def every_offset_is_accounted_for(self) -> None:
        assert accounts(self.objects) == self.expected(self.letters)
        read = {"cutouts": Table(self.objects, TABLES["cutouts"])}
        read["detections"] = Table(self.objects, TABLES["detections"])
        again = ledger.accounts(self.objects, read, self.known)  # what it remembers is right
        assert again == ledger.accounts(self.objects)
        refused = {letter.id for letter in DeadLetterReader(self.objects).letters()}
        assert refused == {f"cutouts/alerts/0/{offset}" for offset, _ in self.letters}


TestLetters = Letters.TestCase
TestLetters.settings = examples(
    max_examples=examples.default.max_examples // 2, stateful_step_count=15
)


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


def put_both(objects: Objects, *numbers: int) -> None:
    for table in ("cutouts", "detections"):
        put_letters(objects, *map(event, numbers), table=table)


def count(objects: Objects) -> tuple[int, int]:
    """The alerts that are dead letters, and those of them that are not accepted."""
    by_table = ledger.accounts(objects)
    return ledger.count_dead(by_table), ledger.count_refused(by_table)


def test_an_alert_is_accepted_when_it_is_in_both_tables(objects) -> None:
    put_both(objects, 1, 2)
    assert count(objects) == (2, 2)
    accept(objects, "cutouts/alerts/0/1")
    assert count(objects) == (2, 2)
    accept(objects, "detections/alerts/0/1")
    assert count(objects) == (2, 1)
    accept(objects)
    assert count(objects) == (2, 0)
    put_both(objects, 3)
    assert count(objects) == (3, 1)


def test_an_acceptance_says_when_and_why(objects) -> None:
    put_letters(objects, event(1), event(None))
    accept(objects, reason="of another survey")
    acceptances = Acceptances(objects)
    for letter in DeadLetterReader(objects).letters():
        decision = acceptances.of(letter)
        assert decision is not None
        assert decision.reason == "of another survey"
        assert abs((decision.at - objects.now()).total_seconds()) < 60
    before = decisions(objects)
    assert accept(objects, reason="again").same == 2
    assert decisions(objects) == before


def test_a_letter_without_a_position_is_accepted_by_its_bytes(objects) -> None:
    put_letters(objects, event(None))
    accept(objects)
    put_letters(objects, Event(event(None).attributes, b"other bytes"))
    acceptances = Acceptances(objects)
    found = [acceptances.of(letter) for letter in DeadLetterReader(objects).letters()]
    assert sorted(each is None for each in found) == [False, True]


def test_accepting_again_in_the_second_of_an_undo_counts(objects) -> None:
    put_letters(objects, event(1))
    now = objects.now()
    with patch.object(MemoryObjects, "now", lambda self: now):
        for undo in (False, True, False, True, False):
            accept(objects, undo=undo)
            assert accounts(objects) == (set(), {1} if undo else set(), set() if undo else {1})
    assert len(decisions(objects)) == 5


def test_two_operators_who_disagree_leave_the_letter_refused(objects) -> None:
    """Each decides before the decision of the other is at the site."""
    put_letters(objects, event(1))
    accept(objects)
    other = MemoryObjects()
    for info in objects.list(""):
        other.put(info.key, objects.get(info.key))
    accept(objects, undo=True)
    accept(objects, reason="it is rightly refused")
    accept(other, undo=True, reason="no, it is not")
    for one, another in ((objects, other), (other, objects)):
        for info in [*one.list(ACCEPTED)]:
            another.put(info.key, one.get(info.key))
    assert accounts(objects) == accounts(other) == (set(), {1}, set())
    accept(other)
    assert accounts(other) == (set(), set(), {1})


@pytest.mark.anyio
async def test_a_replay_sends_no_accepted_letter(objects) -> None:
    """Here is no function that letters could be sent to."""

    async def send() -> Replayed:
        letters, acceptances = DeadLetterReader(objects).letters(), Acceptances(objects)
        stop = asyncio.Event()
        return await replay(
            letters, {}, NOTHING_STORED, Settings(), stop, lambda done: None, acceptances
        )

    put_letters(objects, event(1), event(2))
    accept(objects)
    done = await send()
    assert (done.accepted_before, done.accepted, done.refused) == (2, 0, [])
    status, lines = replay_report(done, stored_offsets(objects))
    assert status == 0
    assert "2 not sent, as they are accepted" in " ".join(map(str, lines))
    put_letters(objects, event(3))
    with pytest.raises(SetupError, match="cutouts/alerts/0/3"):
        await send()


def test_offsets_that_are_no_messages_stay_known_after_a_purge(objects) -> None:
    letter = event(9)
    put_letters(objects, Event(letter.attributes | {"skippedoffsets": "3"}, letter.data))
    before = ledger.accounts(objects)["cutouts"]
    accept(objects)
    purge(objects, DeadLetterReader(objects), lambda _, events: [True] * len(events))
    after = ledger.accounts(objects)["cutouts"]
    assert (after.all, after.not_messages) == (before.all, before.not_messages)
    assert len(after.not_messages) == 3
    assert list(DeadLetterReader(objects).letters()) == []


def test_a_crash_between_two_tables_leaves_every_letter_one_or_the_other(objects) -> None:
    put_both(objects, 1, 2)
    for requests in range(40):
        store = MemoryObjects()
        for info in objects.list(""):
            store.put(info.key, objects.get(info.key))

        def die(number: int, most: int = requests) -> None:
            if number >= most:
                raise StoreDown("killed")

        died = False
        try:
            accept(Watched(store, die))
        except StoreDown:
            died = True
        for table in ("cutouts", "detections"):
            stored, refused, accepted = accounts(store, table)
            assert (stored, refused | accepted) == (set(), {1, 2})
        assert died or count(store) == (2, 0)
        accept(store)
        assert count(store) == (2, 0)
        assert len(decisions(store)) == 2
        if not died:
            return
    pytest.fail("it never came to its end")


def test_a_damaged_decision_accepts_nothing_and_is_named(objects) -> None:
    put_letters(objects, event(1))
    accept(objects)
    (key,) = decisions(objects)
    whole = objects.get(key)
    for at in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        objects.put(key, bytes(damaged))
        account = ledger.accounts(objects)["cutouts"]
        assert offsets(account.accepted) == set()
        assert offsets(account.dead_alone) == {1}
        assert list(account.quarantined) == [key]


def test_a_store_that_changes_bytes_is_noticed(objects) -> None:
    put_letters(objects, event(1))
    with pytest.raises(StoreDown, match="does not read back"):
        accept(Changed(objects, write=lambda data: data[:-1]))


@pytest.mark.parametrize("named", [NAMED_LETTERS, 1])
def test_what_is_known_of_letters_is_read_once(objects, monkeypatch, named: int) -> None:
    """Their bytes are not read if the footer names them, as that of few letters does."""
    monkeypatch.setattr(dead_letter, "NAMED_LETTERS", named)
    large = random.Random(1).randbytes(1 << 20)
    put_letters(objects, Event(event(1).attributes, large), event(2), event(None))
    put_letters(objects, event(3), event(4))
    watched = Watched(objects)
    letters = DeadLetterOffsets(watched)
    letters.of_table("cutouts")
    before = watched.count("get"), watched.got
    assert offsets(letters.accepted("cutouts")) == set()
    accept(objects, "cutouts/alerts/0/1")
    letters.of_table("cutouts")
    assert offsets(letters.accepted("cutouts")) == {1}
    assert 1 <= watched.count("get") - before[0] <= 6  # the decision, and one object of letters
    assert (watched.got - before[1] < len(large) // 4) is (named > 1)
    before = watched.count("get"), watched.got
    accept(objects, "cutouts/alerts/0/1", undo=True)
    letters.of_table("cutouts")
    assert offsets(letters.accepted("cutouts")) == set()
    assert watched.count("get") - before[0] == 1


def test_a_footer_that_does_not_name_each_letter_accepts_none(objects, monkeypatch) -> None:
    put_letters(objects, event(1))
    accept(objects)
    assert accounts(objects) == (set(), set(), {1})
    monkeypatch.setattr(dead_letter, "name_of", lambda table, event: "two names")
    put_letters(objects, event(1))
    assert accounts(objects) == (set(), {1}, set())
