"""Workers, and all the ways in which a batch may end one."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from prometheus_client import REGISTRY

from stampede.errors import StampedeError, StoreDown
from stampede.events.batching import Outcome
from stampede.events.event import Event
from stampede.events.spool import Spool
from stampede.events.worker import deadline
from stampede.events.workers import Workers
from stampede.settings import Settings
from tests.support import batch_storers

# Whole processes: not for the quick loop.
pytestmark = pytest.mark.integration


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "spool").mkdir()
    return Settings(
        store=str(tmp_path), spool=tmp_path / "spool", flush_seconds=60, worker_memory=300 << 20
    )


@pytest.fixture
def flush(settings: Settings) -> Iterator[Callable[..., list[Outcome]]]:
    """Flush messages; several calls share one set of workers."""
    with asyncio.Runner() as runner:
        workers = Workers("testing", batch_storers.make, settings)

        def go(*messages: bytes) -> list[Outcome]:
            return runner.run(workers.flush([event(*each) for each in enumerate(messages)]))

        yield go
        runner.run(workers.close())
    assert not list(settings.spool.iterdir())


def event(offset: int, data: bytes) -> Event:
    subject = f"partition:0#{offset}"
    return Event({"id": str(offset), "source": "x#alerts", "subject": subject}, data)


def statuses(verdicts: list[Outcome]) -> list[int]:
    return [verdict.status if verdict else 204 for verdict in verdicts]


def batches(settings: Settings) -> list[tuple[int, bool, int]]:
    """Number of messages, whether careful, and pid, of each batch that a worker got."""
    lines = (line.split() for line in Path(settings.store, "batches").read_text().splitlines())
    return [(int(count), careful == "True", int(pid)) for count, careful, pid in lines]


def stored(settings: Settings) -> set[str]:
    return set(Path(settings.store, "stored").read_text().splitlines())


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"function": "testing", **labels}) or 0.0


def test_verdicts_come_back_in_order(flush, settings) -> None:
    before = counted("stampede_flush_alerts_total")
    assert statuses(flush(b"a", b"bad", b"", b"c" * 100_000)) == [204, 400, 204, 204]
    assert batches(settings)[0][:2] == (4, False)
    assert counted("stampede_flush_alerts_total") == before + 4
    assert counted("stampede_flush_stage_seconds_total", stage="decode") >= 0.5


def test_a_batch_without_a_byte(flush) -> None:
    assert statuses(flush(b"", b"")) == [204, 204]


def test_one_worker_lives_through_many_batches(flush, settings) -> None:
    for _ in range(5):
        assert statuses(flush(b"a")) == [204]
    assert len({pid for _, _, pid in batches(settings)}) == 1


KILLERS = {
    b"spin": (400, "never ends"),
    b"exit": (400, "cost the process its life"),
    b"segfault": (400, "cost the process its life"),
    b"memory": (400, "too much memory"),
    b"decoder": (400, "a value cannot be read"),
    b"bug": (500, "KeyError"),
}


@pytest.mark.parametrize("killer", KILLERS)
def test_the_one_to_blame_is_found_and_no_other(flush, settings, killer: bytes) -> None:
    status, reason = KILLERS[killer]
    good = [f"good-{n}".encode() for n in range(7)]
    verdicts = flush(*good[:5], killer, *good[5:])
    assert statuses(verdicts) == [204] * 5 + [status] + [204] * 2
    assert isinstance(verdicts[5], StampedeError)
    assert reason in verdicts[5].message
    names = {line.split()[0] for line in stored(settings)}
    assert {m.decode() for m in good} <= names
    # As one, then carefully as one, then halves of it.
    sizes = [(count, careful) for count, careful, _ in batches(settings)]
    assert sizes == [
        *[(8, False), (8, True), (4, True), (4, True)],
        *[(2, True), (1, True), (1, True), (2, True)],
    ]


def test_checking_each_alone_may_be_enough(flush, settings) -> None:
    assert statuses(flush(b"a", b"careless", b"b")) == [204] * 3
    assert [(count, careful) for count, careful, _ in batches(settings)] == [(3, False), (3, True)]


def test_several_to_blame(flush) -> None:
    before = counted("stampede_worker_deaths_total")
    verdicts = flush(b"a", b"exit", b"bad", b"b", b"decoder", b"c")
    assert statuses(verdicts) == [204, 400, 400, 204, 400, 204]
    assert counted("stampede_worker_deaths_total") > before


def test_a_worker_that_died_is_replaced(flush, settings) -> None:
    assert statuses(flush(b"exit")) == [400]
    assert statuses(flush(b"a")) == [204]
    pids = {pid for _, _, pid in batches(settings)}
    assert len(pids) >= 2
    assert statuses(flush(b"b")) == [204]


def test_the_store_being_down_is_nobody_s_fault(flush, settings) -> None:
    with pytest.raises(StoreDown, match="away"):
        flush(b"a", b"down", b"b")
    assert len(batches(settings)) == 1
    assert statuses(flush(b"a")) == [204]


def test_a_store_that_cannot_be_is_nobody_s_fault(settings) -> None:
    with asyncio.Runner() as runner:
        workers = Workers("testing", batch_storers.fail_to_make, settings)
        for _ in range(2):
            with pytest.raises(StampedeError, match="no such store"):
                runner.run(workers.flush([event(0, b"a")]))
        runner.run(workers.close())


def test_a_worker_killed_from_outside_blames_nobody_for_good(flush, settings) -> None:
    assert statuses(flush(b"a", b"killed")) == [204, 500]


def test_what_a_dead_worker_leaves_is_removed(flush, settings) -> None:
    assert statuses(flush(b"a", b"litter")) == [204, 400]
    assert not [path for path in settings.spool.rglob("*") if path.is_file()]


def test_what_a_dead_process_leaves_is_removed(settings) -> None:
    left = settings.spool / "stampede-left"
    left.mkdir()
    (left / "x.batch").write_bytes(bytes(1000))
    one, two = Spool(settings.spool), Spool(settings.spool)
    assert sorted(settings.spool.iterdir()) == sorted([one.path, two.path])
    one.close()
    two.close()


def test_a_flush_that_takes_too_long_blames_the_store(settings) -> None:
    settings = settings.model_copy(update={"flush_seconds": 15})  # the worker's start is in it
    with asyncio.Runner() as runner:
        workers = Workers("testing", batch_storers.make, settings)
        assert statuses(runner.run(workers.flush([event(0, b"a")]))) == [204]
        begin = time.monotonic()
        with pytest.raises(StampedeError, match="storing took more than") as failed:
            runner.run(workers.flush([event(0, b"slow"), event(1, b"a")]))
        assert failed.value.status == 503
        assert time.monotonic() - begin < 200
        assert statuses(runner.run(workers.flush([event(0, b"a")]))) == [204]
        runner.run(workers.close())


def test_a_full_spool_is_nobody_s_fault(settings) -> None:
    with asyncio.Runner() as runner:
        workers = Workers("testing", batch_storers.make, settings)
        (spool,) = settings.spool.iterdir()
        aside = spool.rename(settings.spool / "aside")
        with pytest.raises(StampedeError, match="spool") as failed:
            runner.run(workers.flush([event(0, b"a")]))
        assert failed.value.status == 503
        aside.rename(spool)
        assert statuses(runner.run(workers.flush([event(0, b"a")]))) == [204]
        runner.run(workers.close())


def test_workers_end_when_closed(settings) -> None:
    with asyncio.Runner() as runner:
        workers = Workers("testing", batch_storers.make, settings)
        runner.run(workers.flush([event(0, b"a")]))
        runner.run(workers.close())
    pid = batches(settings)[0][2]
    with suppress(psutil.NoSuchProcess):
        assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_deadline_that_is_kept_leaves_nothing_behind() -> None:
    with deadline(0.05):
        pass
    time.sleep(0.1)  # it would have been the end of this process
