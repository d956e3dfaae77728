import multiprocessing
import os
import time

import psutil
import pytest

from stampede_bench.cpu import Cpu, peak_memory, processes

TICK = 0.011  # seconds: the kernel counts in hundredths


def work(seconds: float) -> None:
    end = time.process_time() + seconds
    while time.process_time() < end:
        pass


def test_cpu_times_agree_with_psutil() -> None:
    before = psutil.Process().cpu_times()
    stat = dict(processes())[os.getpid()]
    after = psutil.Process().cpu_times()
    assert stat.parent == os.getppid()
    assert before.user + before.system <= stat.seconds + TICK
    assert stat.seconds <= after.user + after.system + TICK


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
