import multiprocessing
import os
import time

import psutil
import pytest

from stampede_bench.instruments.cpu import Cpu, cpu_seconds, peak_memory, processes
from stampede_bench.machine import disk_wait

TICK = 0.03  # seconds: psutil rounds user and system time to hundredths, and lags by a tick


def work(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_cpu_times_agree_with_psutil() -> None:
    before = psutil.Process().cpu_times()
    seconds = cpu_seconds(os.getpid())
    after = psutil.Process().cpu_times()
    assert before.user + before.system <= seconds + TICK
    assert seconds <= after.user + after.system + TICK


def test_less_than_a_tick_is_counted() -> None:
    before = cpu_seconds(os.getpid())
    work(0.002)
    assert 0.002 <= cpu_seconds(os.getpid()) - before < 0.01


def test_a_process_that_is_gone_has_no_cpu_time() -> None:
    assert cpu_seconds(2**22) == 0.0


def test_every_process_has_its_parent() -> None:
    assert dict(processes())[os.getpid()] == os.getppid()


@pytest.mark.nightly
def test_workers_count_separately_from_their_parent() -> None:
    pipe, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,))
    child.start()
    try:
        assert pipe.recv() == "ready"
        cpu = Cpu({"me": os.getpid()})
        pipe.send(0.3)
        assert pipe.recv() == "done"
        spent = cpu.seconds()
        assert spent["me workers"] == pytest.approx(0.3, abs=0.1)
        assert spent["me"] < 0.2
        assert cpu.wall > 0.2
        assert 0 <= cpu.others(0.0) <= (os.cpu_count() or 1) * 1.1
    finally:
        child.kill()
        child.join()


def test_the_most_memory_that_a_process_ever_held() -> None:
    held = bytes(100 << 20)
    with_it = psutil.Process().memory_info().rss
    assert len(held) == 100 << 20
    del held
    found = peak_memory({"me": os.getpid(), "nobody": 2**22})
    assert found["me"] >= with_it * 0.99
    assert found["nobody"] == 0


def serve(pipe) -> None:
    pipe.send("ready")
    work(pipe.recv())
    pipe.send("done")
    pipe.recv()


def test_the_wait_for_disks_grows() -> None:
    before = disk_wait()
    if before is None:
        pytest.skip("this kernel does not count what waits for disks")
    assert 0 <= before <= disk_wait() < 10**9
