"""Workers, and all the ways in which a batch may kill one."""

import importlib
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import anyio
import psutil
import pytest
from prometheus_client import REGISTRY

from stampede.config.settings import Settings
from stampede.errors import StampedeError, StoreDown
from stampede.events.cloudevents.event import Event
from stampede.events.workers.batching import Outcome
from stampede.events.workers.pool import Workers
from stampede.events.workers.spool import Spool
from stampede.events.workers.worker import deadline
from tests.support.events import batch_storers

# Starts processes: too slow for the quick loop.
pytestmark = [pytest.mark.integration, pytest.mark.anyio]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    (tmp_path / "spool").mkdir()
    return Settings(
        store=str(tmp_path), spool=tmp_path / "spool", flush_seconds=60, worker_memory=300 << 20
    )


StoreMessages = Callable[..., Awaitable[list[Outcome]]]


@pytest.fixture
async def store(settings: Settings) -> AsyncIterator[StoreMessages]:
    """Stores messages; several calls share one set of workers."""
    async with Workers("testing", batch_storers.make, settings) as workers:

        async def store_messages(*messages: bytes) -> list[Outcome]:
            return await workers.store_batch([event(*each) for each in enumerate(messages)])

        yield store_messages
    assert not list(settings.spool.iterdir())


def event(offset: int, data: bytes) -> Event:
    subject = f"partition:0#{offset}"
    return Event({"id": str(offset), "source": "x#alerts", "subject": subject}, data)


def statuses(outcomes: list[Outcome]) -> list[int]:
    return [outcome.status if outcome else 204 for outcome in outcomes]


def batches(settings: Settings) -> list[tuple[int, str, int]]:
    """For each batch a worker got: number of messages, isolation, the worker's pid."""
    lines = (line.split() for line in Path(settings.store, "batches").read_text().splitlines())
    return [(int(count), isolation, int(pid)) for count, isolation, pid in lines]


def stored(settings: Settings) -> set[str]:
    return set(Path(settings.store, "stored").read_text().splitlines())


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, {"function": "testing", **labels}) or 0.0


async def test_outcomes_come_back_in_order(store, settings) -> None:
    before = counted("stampede_flush_alerts_total")
    assert statuses(await store(b"a", b"bad", b"", b"c" * 100_000)) == [204, 400, 204, 204]
    assert batches(settings)[0][:2] == (4, "fast")
    assert counted("stampede_flush_alerts_total") == before + 4
    assert counted("stampede_flush_stage_seconds_total", stage="decode") >= 0.5


async def test_a_batch_of_empty_events(store) -> None:
    assert statuses(await store(b"", b"")) == [204, 204]


async def test_one_worker_lives_through_many_batches(store, settings) -> None:
    for _ in range(5):
        assert statuses(await store(b"a")) == [204]
    assert len({pid for _, _, pid in batches(settings)}) == 1


async def test_a_worker_keeps_no_bytes_of_a_batch(store, settings) -> None:
    """Also if the batch was stored, and an error on the way holds the frames that hold it."""
    for message in (b"knot", b"bad", b"a"):
        await store(message)
        pid = batches(settings)[-1][2]
        deadline = time.monotonic() + 10
        while ".batch" in Path(f"/proc/{pid}/maps").read_text():
            assert time.monotonic() < deadline, message
            await anyio.sleep(0.05)


KILLERS = {
    b"spin": (400, "never ends"),
    b"exit": (400, "cost the process its life"),
    b"segfault": (400, "cost the process its life"),
    b"memory": (400, "too much memory"),
    b"decoder": (400, "a value cannot be read"),
    b"bug": (500, "KeyError"),
}


@pytest.mark.parametrize("killer", KILLERS)
async def test_the_message_at_fault_is_found(store, settings, killer: bytes) -> None:
    status, reason = KILLERS[killer]
    good = [f"good-{n}".encode() for n in range(7)]
    outcomes = await store(*good[:5], killer, *good[5:])
    assert statuses(outcomes) == [204] * 5 + [status] + [204] * 2
    assert isinstance(outcomes[5], StampedeError)
    assert reason in outcomes[5].message
    names = {line.split()[0] for line in stored(settings)}
    assert {m.decode() for m in good} <= names
    # The batch, then in isolation; then the message at fault is known.
    alone = [(1, "alone")] if killer == b"memory" else []
    assert [(count, isolation) for count, isolation, _ in batches(settings)] == [
        *[(8, "fast"), (8, "checked"), *alone, (5, "fast"), (2, "checked")]
    ]


async def test_the_message_at_fault_costs_the_same_in_a_large_batch(store, settings) -> None:
    good = [f"good-{n}".encode() for n in range(1000)]
    assert statuses(await store(*good, b"exit")) == [204] * 1000 + [400]
    assert [(count, isolation) for count, isolation, _ in batches(settings)] == [
        *[(1001, "fast"), (1001, "checked"), (1000, "fast")]
    ]


async def test_checking_each_alone_may_be_enough(store, settings) -> None:
    assert statuses(await store(b"a", b"careless", b"b")) == [204] * 3
    assert [each[:2] for each in batches(settings)] == [(3, "fast"), (3, "checked")]


async def test_a_bug_behind_the_decoder_is_blamed_on_its_message_alone(store, settings) -> None:
    outcomes = await store(b"a", b"late", b"b", b"c", b"d")
    assert statuses(outcomes) == [204, 500, 204, 204, 204]
    assert isinstance(outcomes[1], StampedeError)
    assert "behind the decoder" in outcomes[1].message
    assert {line.split()[0] for line in stored(settings)} == {"a", "b", "c", "d"}


async def test_several_messages_at_fault(store) -> None:
    before = counted("stampede_worker_deaths_total")
    outcomes = await store(b"a", b"exit", b"bad", b"b", b"decoder", b"c")
    assert statuses(outcomes) == [204, 400, 400, 204, 400, 204]
    assert counted("stampede_worker_deaths_total") > before


async def test_a_worker_that_died_is_replaced(store, settings) -> None:
    assert statuses(await store(b"exit")) == [400]
    assert statuses(await store(b"a")) == [204]
    pids = {pid for _, _, pid in batches(settings)}
    assert len(pids) >= 2
    assert statuses(await store(b"b")) == [204]


async def test_a_worker_that_cannot_be_replaced_now_is_replaced_later(store, settings) -> None:
    [spool] = settings.spool.iterdir()
    files = spool / "0"
    shutil.rmtree(files)
    files.touch()  # in the way of the next worker's directory, as a full disk would be
    for message in (b"exit", b"a", b"a"):
        with pytest.raises(StoreDown, match="cannot start a worker"):
            await store(message)
    files.unlink()
    assert statuses(await store(b"a")) == [204]


async def test_a_worker_that_cannot_start_is_no_messages_fault(
    settings, tmp_path, monkeypatch
) -> None:
    """Its code is gone for a moment, as during an update."""
    module, aside = tmp_path / "vanishing.py", tmp_path / "aside"
    module.write_text(
        "from tests.support.events.batch_storers import make\n\n"
        "def make_one(settings):\n    return make(settings)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    make_one = importlib.import_module("vanishing").make_one
    async with Workers("testing", make_one, settings) as workers:
        assert statuses(await workers.store_batch([event(0, b"a")])) == [204]
        module.rename(aside)
        shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
        psutil.Process(batches(settings)[-1][2]).kill()
        for _ in range(2):
            with pytest.raises(StoreDown, match="before it was ready"):
                await workers.store_batch([event(0, b"a")])
        aside.rename(module)
        with suppress(StoreDown):  # of a worker that was started before
            await workers.store_batch([event(0, b"a")])
        assert statuses(await workers.store_batch([event(0, b"a")])) == [204]


async def test_if_the_store_is_down_no_message_is_at_fault(store, settings) -> None:
    with pytest.raises(StoreDown, match="away"):
        await store(b"a", b"down", b"b")
    assert len(batches(settings)) == 1
    assert statuses(await store(b"a")) == [204]


async def test_if_a_worker_cannot_start_no_message_is_at_fault(settings) -> None:
    async with Workers("testing", batch_storers.fail_to_make, settings) as workers:
        for _ in range(2):
            with pytest.raises(StampedeError, match="no such store"):
                await workers.store_batch([event(0, b"a")])


async def test_after_a_kill_from_outside_a_message_may_be_retried(store, settings) -> None:
    assert statuses(await store(b"a", b"killed")) == [204, 500]


async def test_files_of_a_dead_worker_are_removed(store, settings) -> None:
    assert statuses(await store(b"a", b"litter")) == [204, 400]
    [spool] = settings.spool.iterdir()
    assert not list((spool / "0").iterdir())


async def test_batches_share_a_file_but_not_after_a_failure(store, settings) -> None:
    def files() -> set[int]:
        [spool] = settings.spool.iterdir()
        return {path.stat().st_ino for path in spool.iterdir() if path.is_file()}

    assert statuses(await store(b"a", b"bc")) == [204, 204]
    first = files()
    assert len(first) == 1
    assert statuses(await store(b"d" * 100_000)) == [204]
    assert statuses(await store(b"ef")) == [204]
    assert files() == first
    assert statuses(await store(b"a", b"exit")) == [204, 400]
    assert len(files()) == 1
    found = {line.split()[0] for line in stored(settings)}
    assert found == {"a", "bc", "d" * 100_000, "ef"}


def test_the_spool_of_a_dead_process_is_removed(settings) -> None:
    left = settings.spool / "stampede-left"
    left.mkdir()
    (left / "x.batch").write_bytes(bytes(1000))
    one, two = Spool(settings.spool), Spool(settings.spool)
    assert sorted(settings.spool.iterdir()) == sorted([one.path, two.path])
    one.close()
    two.close()


async def test_a_batch_that_takes_too_long_is_the_stores_fault(settings) -> None:
    settings = settings.model_copy(update={"flush_seconds": 15})  # includes the start of the worker
    async with Workers("testing", batch_storers.make, settings) as workers:
        assert statuses(await workers.store_batch([event(0, b"a")])) == [204]
        begin = time.monotonic()
        with pytest.raises(StampedeError, match="storing took more than") as failed:
            await workers.store_batch([event(0, b"slow"), event(1, b"a")])
        assert failed.value.status == 503
        assert time.monotonic() - begin < 200
        assert statuses(await workers.store_batch([event(0, b"a")])) == [204]


async def test_if_the_spool_is_full_no_message_is_at_fault(settings) -> None:
    async with Workers("testing", batch_storers.make, settings) as workers:
        (spool,) = settings.spool.iterdir()
        aside = spool.rename(settings.spool / "aside")
        with pytest.raises(StampedeError, match="spool") as failed:
            await workers.store_batch([event(0, b"a")])
        assert failed.value.status == 503
        aside.rename(spool)
        assert statuses(await workers.store_batch([event(0, b"a")])) == [204]


async def test_workers_end_when_closed(settings) -> None:
    async with Workers("testing", batch_storers.make, settings) as workers:
        await workers.store_batch([event(0, b"a")])
    pid = batches(settings)[0][2]
    with suppress(psutil.NoSuchProcess):
        assert psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_deadline_within_another_leaves_it_its_time() -> None:
    clock, _ = signal.getitimer(signal.ITIMER_REAL)  # pytest's own time limit, if there is one
    with deadline(100):
        with deadline(0.05):
            pass
        left, _ = signal.getitimer(signal.ITIMER_PROF)
    assert 50 < left < 101
    assert signal.getitimer(signal.ITIMER_PROF) == (0, 0)
    assert signal.getitimer(signal.ITIMER_REAL)[0] == pytest.approx(clock, abs=1)


def test_a_deadline_that_is_met_sets_off_no_signal_later() -> None:
    with deadline(0.05):
        pass
    time.sleep(0.1)  # the signal would end this process
