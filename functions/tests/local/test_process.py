import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from stampede.errors import SetupError
from stampede_local.process import Process, started, wait_until
from tests.support.waiting import eventually, gone

SLEEP = ["sleep", "60"]


STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('ready', flush=True); time.sleep(60)",
]


def test_stop_sends_sigterm(tmp_path: Path) -> None:
    process = Process("sleeper", SLEEP, tmp_path / "log")
    assert (process.running, process.pid, process.status) == (False, None, None)
    process.start()
    assert process.running
    process.stop()
    assert process.status == -signal.SIGTERM
    assert gone(process.pid)
    process.stop()  # harmless


def test_a_process_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    process = Process("mule", STUBBORN, tmp_path / "log")
    process.start()
    wait_until(lambda: "ready" in process.tail(), process)
    process.stop(seconds=0.2)
    assert process.status == -signal.SIGKILL


@pytest.mark.parametrize("end", ["stop", "kill", "crash"])
def test_its_own_children_end_too(tmp_path: Path, end: str) -> None:
    process = Process("shell", ["sh", "-c", "sleep 60 & echo $!; exec sleep 60"], tmp_path / "log")
    process.start()
    wait_until(lambda: process.tail().strip().isdigit(), process)
    grandchild = int(process.tail())
    assert not gone(grandchild)
    if end == "crash":
        assert process.pid
        os.kill(process.pid, signal.SIGSEGV)
        eventually(lambda: not process.running)
    else:
        getattr(process, end)()
    assert not process.running
    eventually(lambda: gone(grandchild))


def test_it_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from stampede_local.process import Process\n"
        f"p = Process('sleeper', {SLEEP!r}, Path({str(tmp_path / 'log')!r}))\n"
        "p.start(); print(p.pid, flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    with parent:
        child = int(parent.stdout.readline())
        eventually(lambda: psutil.Process(child).name() == "sleep")
        parent.kill()
    eventually(lambda: gone(child))


def test_waiting_for_a_process_that_ended_reports_its_log(tmp_path: Path) -> None:
    process = Process("failing", ["sh", "-c", "echo no disk; exit 3"], tmp_path / "log")
    process.start()
    with pytest.raises(SetupError, match=r"(?s)failing ended with status 3.*no disk"):
        wait_until(lambda: False, process)


def test_a_started_process_runs_in_its_block_alone(tmp_path: Path) -> None:
    process = Process("sleeper", SLEEP, tmp_path / "log")

    def fail() -> None:
        with started(process, lambda: process.running):
            assert process.running
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert gone(process.pid)


def test_a_started_process_that_is_never_ready_ends(tmp_path: Path) -> None:
    process = Process("sleeper", SLEEP, tmp_path / "log")
    with pytest.raises(ValueError, match="asked"):
        started(process, lambda: int("asked") > 0).__enter__()
    assert gone(process.pid)


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="there is no program no-such-program"):
        Process("x", ["no-such-program"], tmp_path / "log").start()
