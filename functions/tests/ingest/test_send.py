"""Alerts from disk to two functions: here HTTP servers whose responses a test decides."""

import asyncio
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.deadletters.dead_letter import reason_of
from stampede.errors import SetupError
from stampede.events.cloudevents.event import parse
from stampede.events.delivery.delivery import NoPlace
from stampede.ingest.files import find
from stampede.ingest.identity import identify
from stampede.ingest.send import AlertSink, Ingested, Progress, ingest
from stampede.ingest.tally import Refusal
from stampede.store.integrity.ledger import expected
from stampede.store.objects.memory import MemoryObjects
from tests.support.events.receiver import Received, Receiver, Reply

pytestmark = pytest.mark.anyio

COUNT = 40


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files that hold no alerts: nothing here decodes them."""
    folder = tmp_path / "night"
    folder.mkdir()
    for number in range(COUNT):
        (folder / f"{number:03d}.avro").write_bytes(f"alert {number}".encode() * 100)
    return folder


class TwoFunctions:
    """The functions `one` and `two`, and their dead letters."""

    def __init__(self) -> None:
        self.one, self.two, self.dead = Receiver(), Receiver(), Receiver()
        self.objects = MemoryObjects()
        self.counts: list[int] = []

    def __enter__(self) -> "TwoFunctions":
        for each in (self.one, self.two, self.dead):
            each.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        for each in (self.one, self.two, self.dead):
            each.__exit__()

    async def ingest(self, *paths: Path, stop_when: Callable[[], bool] = lambda: False) -> Ingested:
        stop = asyncio.Event()

        def progress(count: Progress) -> None:
            self.counts.append(count.alerts)
            if count.alerts and stop_when():
                stop.set()

        sinks = [
            AlertSink((f"table{n}",), each.url, self.dead.url.rstrip("/"))
            for n, each in enumerate(self.sinks)
        ]
        settings = Settings(backoff_seconds=0.02, retries=2, in_flight=40)
        return await asyncio.wait_for(
            ingest(paths, sinks, self.objects, settings, stop, progress), 150
        )

    @property
    def sinks(self) -> tuple[Receiver, Receiver]:
        return self.one, self.two


def arrived(receiver: Receiver) -> list[tuple[int, int]]:
    return sorted(each.place for each in receiver.accepted)


async def test_every_alert_reaches_every_function(folder: Path) -> None:
    with TwoFunctions() as functions:
        done = await functions.ingest(folder)
        assert done.topic == identify(find([folder]), Settings().max_alert_bytes).topic
        assert (done.tally.alerts, done.tally.stored, done.complete) == (COUNT, COUNT, True)
        for sink in functions.sinks:
            assert arrived(sink) == [(0, offset) for offset in range(COUNT)]
            bodies = {each.place[1]: each.body for each in sink.accepted}
            assert bodies[7] == b"alert 7" * 100
        assert expected(functions.objects) == {(done.topic, 0): (0, COUNT)}
        assert functions.counts == [0] * COUNT + list(range(1, COUNT + 1))


async def test_the_events_are_those_of_a_source(folder: Path) -> None:
    with TwoFunctions() as functions:
        done = await functions.ingest(folder)
        one = functions.one.accepted[0]
        headers = [(name.encode(), value.encode()) for name, value in one.headers.items()]
        assert parse(headers, one.body).position == (done.topic, *one.place)


async def test_a_repeated_ingest_sends_the_same_events(folder: Path) -> None:
    with TwoFunctions() as functions:
        first, second = await functions.ingest(folder), await functions.ingest(folder)
        assert first.topic == second.topic
        events = [
            (each.id, each.headers["ce-source"], each.body) for each in functions.one.accepted
        ]
        assert len(events) == 2 * COUNT
        assert len(set(events)) == COUNT


async def test_the_same_content_under_another_name_is_the_same_events(
    folder: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "moved" / "elsewhere"
    shutil.copytree(folder, copy)
    with TwoFunctions() as functions:
        first, second = await functions.ingest(folder), await functions.ingest(copy)
        assert first.topic == second.topic
        assert len({(each.id, each.body) for each in functions.one.accepted}) == COUNT


async def test_other_content_of_the_same_name_and_size_is_other_events(folder: Path) -> None:
    """A damaged file must not count as stored because the good one is."""
    damaged = folder / "007.avro"
    with TwoFunctions() as functions:
        good = await functions.ingest(damaged)
        status = damaged.stat()
        damaged.write_bytes(bytes(len(damaged.read_bytes())))
        os.utime(damaged, ns=(status.st_atime_ns, status.st_mtime_ns))
        bad = await functions.ingest(damaged)
        assert bad.topic != good.topic
        assert expected(functions.objects) == {(good.topic, 0): (0, 1), (bad.topic, 0): (0, 1)}


async def test_what_is_refused_goes_to_the_dead_letters_of_its_table(folder: Path) -> None:
    def refuse_seven(event: Received, times: int) -> Reply:
        return (400, b"no alert", {}) if event.place[1] == 7 else (204, b"", {})

    with TwoFunctions() as functions:
        functions.two.answer = refuse_seven
        done = await functions.ingest(folder)
        assert done.complete
        assert len(arrived(functions.one)) == COUNT
        assert len(arrived(functions.two)) == COUNT - 1
        (refusal,) = done.tally.refusals()
        name = str(folder / "007.avro")
        assert refusal == Refusal(1, ("table1",), name, "no alert")
        assert (done.tally.stored, done.tally.refused) == (COUNT - 1, 1)
        (letter,) = functions.dead.accepted
        assert letter.headers["ce-file"] == name
        assert letter.place == (0, 7)
        assert letter.body == b"alert 7" * 100
        assert letter.headers["ce-knativeerrorcode"] == "400"


async def test_it_waits_for_a_function_that_is_down(folder: Path) -> None:
    with TwoFunctions() as functions:
        functions.two.__exit__()
        timer = threading.Timer(1.0, functions.two.__enter__)
        timer.start()
        assert (await functions.ingest(folder)).complete
        timer.join()
        assert len(arrived(functions.two)) == COUNT
        assert not functions.dead.requests


async def test_a_stopped_ingest_is_not_complete_and_expects_nothing(folder: Path) -> None:
    with TwoFunctions() as functions:
        functions.one.delay = 0.05
        done = await functions.ingest(folder, stop_when=lambda: functions.counts[-1] >= 5)
        assert not done.complete
        assert 5 <= done.tally.alerts < COUNT
        assert expected(functions.objects) == {}


async def test_it_stops_while_a_function_is_down(folder: Path) -> None:
    with TwoFunctions() as functions:

        def refuse(event: Received, times: int) -> Reply:
            return (503, b"away", {}) if event.place[1] > 3 else (204, b"", {})

        functions.two.answer = refuse
        done = await functions.ingest(folder, stop_when=lambda: True)
        assert not done.complete
        assert done.tally.alerts <= 4


async def test_an_empty_folder_and_an_empty_archive_are_errors(tmp_path: Path) -> None:
    with TwoFunctions() as functions:
        with pytest.raises(SetupError, match="no alerts in"):
            await functions.ingest(tmp_path)
        (tmp_path / "night.tar").write_bytes(bytes(10240))
        with pytest.raises(SetupError, match=r"night\.tar: no alerts in there"):
            await functions.ingest(tmp_path)
        assert expected(functions.objects) == {}


async def test_what_cannot_be_read_is_one_dead_letter_of_each_table(
    folder: Path, tmp_path: Path
) -> None:
    archive = tmp_path / "dämaged.tar.gz"
    archive.write_bytes(b"\x1f\x8b but no more")
    with TwoFunctions() as functions:
        done = await functions.ingest(folder, archive)
        assert done.complete
        assert expected(functions.objects) == {(done.topic, 0): (0, COUNT + 1)}
        assert (done.tally.refused, done.tally.faults) == (1, 1)
        (refusal,) = done.tally.refusals()
        assert refusal.tables == ("table0", "table1")
        assert "the gzip data are damaged" in refusal.reason
        assert len(arrived(functions.one)) == COUNT  # no function is asked
        for letter in functions.dead.accepted:
            assert letter.body == archive.read_bytes()
            headers = [(name.encode(), value.encode()) for name, value in letter.headers.items()]
            attributes = parse(headers, letter.body).attributes
            assert attributes["file"] == str(archive)
            assert reason_of(attributes["knativeerrordata"]) == refusal.reason
        assert len(functions.dead.accepted) == 2


async def test_a_dead_letter_that_is_refused_ends_the_ingest(folder: Path) -> None:
    with TwoFunctions() as functions:
        functions.one.answer = lambda event, times: (400, b"no alert", {})
        functions.dead.answer = lambda event, times: (413, b"too large", {})
        with pytest.raises(NoPlace, match=r"refused \(no alert\).* dead letter: 413: too large"):
            await functions.ingest(folder)
        assert expected(functions.objects) == {}


async def test_a_file_that_is_written_meanwhile_is_an_error(folder: Path) -> None:
    """Its alerts would get the offsets of what it was."""
    last = folder / f"{COUNT - 1:03d}.avro"

    def write_more() -> bool:
        if functions.counts[-1] == 1:
            last.write_bytes(b"more than before")
        return False

    with TwoFunctions() as functions:
        functions.one.delay = 0.05
        with pytest.raises(SetupError, match=f"{last.name} was written while it was being read"):
            await functions.ingest(folder, stop_when=write_more)
        assert expected(functions.objects) == {}


async def test_stopped_while_files_are_digested(folder: Path) -> None:
    with TwoFunctions() as functions:
        stop = asyncio.Event()
        stop.set()
        done = await ingest([folder], [], functions.objects, Settings(), stop, lambda _: None)
        assert not done.complete
        assert expected(functions.objects) == {}
