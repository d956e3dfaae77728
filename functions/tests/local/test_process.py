import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import psutil
import pytest

from stampede.errors import SetupError
from stampede_local.ports import free_port, require_free
from stampede_local.process import Process, wait_until
from stampede_local.supervisor import State, Supervisor

SLEEP = ["sleep", "60"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "print('ready', flush=True); time.sleep(60)",
]


def eventually(holds: Callable[[], bool], seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def gone(pid: int | None) -> bool:
    assert pid
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_it_ends_when_told(tmp_path: Path) -> None:
    process = Process("sleeper", SLEEP, tmp_path / "log")
    assert (process.running, process.pid, process.status) == (False, None, None)
    process.start()
    assert process.running
    process.stop()
    assert process.status == -signal.SIGTERM
    assert gone(process.pid)
    process.stop()  # harmless


def test_a_stubborn_one_is_killed(tmp_path: Path) -> None:
    process = Process("mule", STUBBORN, tmp_path / "log")
    process.start()
    wait_until(lambda: "ready" in process.tail(), process)
    process.stop(seconds=0.2)
    assert process.status == -signal.SIGKILL


@pytest.mark.parametrize("end", ["stop", "kill", "crash"])
def test_what_it_started_itself_goes_too(tmp_path: Path, end: str) -> None:
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


def test_an_end_while_waited_for_shows_the_log(tmp_path: Path) -> None:
    process = Process("failing", ["sh", "-c", "echo no disk; exit 3"], tmp_path / "log")
    process.start()
    with pytest.raises(SetupError, match=r"(?s)failing ended with status 3.*no disk"):
        wait_until(lambda: False, process)


def test_a_missing_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="there is no program no-such-program"):
        Process("x", ["no-such-program"], tmp_path / "log").start()


def test_a_taken_port_is_refused(tmp_path: Path) -> None:
    port = free_port()
    serve = ["-m", "http.server", "--bind", "127.0.0.1", str(port)]
    require_free(port)
    server = Process("server", [sys.executable, "-u", *serve], tmp_path / "log")
    server.start()
    try:
        wait_until(lambda: "Serving" in server.tail(), server)
        with pytest.raises(SetupError, match=f"port {port} "):
            require_free(port)
    finally:
        server.stop()


def test_no_two_processes_are_given_one_port(monkeypatch) -> None:
    """Of twenty ports each takes two until the other ends, and what is given they do not share."""
    ports = range(20_000, 20_020)
    code = f"""
from stampede_local import ports
ports._PORTS = range({ports.start}, {ports.stop})
print(*(ports.free_port(2) for _ in range(2)), flush=True)
input()
"""
    monkeypatch.setattr("stampede_local.ports._PORTS", ports)
    monkeypatch.setattr("stampede_local.ports._given", set())
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as other:
        theirs = {int(port) + i for port in other.stdout.readline().split() for i in range(2)}
        mine = {free_port() for _ in range(8)}
        assert len(theirs | mine) == 4 + 8
        other.communicate("end\n")


def test_a_supervised_one_is_started_again_ever_slower(tmp_path: Path) -> None:
    changes: list[tuple[float, str, State]] = []
    good = Process("good", SLEEP, tmp_path / "good")
    bad = Process("bad", ["sh", "-c", "echo again; exit 1"], tmp_path / "bad")
    supervisor = Supervisor(
        lambda process, state: changes.append((time.monotonic(), process.name, state)), first=0.1
    )
    with supervisor:
        supervisor.add(good)
        supervisor.add(bad)
        eventually(lambda: bad.tail().count("again") >= 4)
        first = good.pid
        assert supervisor.states()["good"] is State.RUNNING
        good.kill()
        eventually(lambda: good.running and good.pid != first)
    assert supervisor.states() == {"good": State.STOPPED, "bad": State.STOPPED}
    assert gone(good.pid)
    starts = [at for at, name, state in changes if name == "bad" and state is State.RUNNING]
    pauses = [later - sooner for sooner, later in pairwise(starts)]
    assert len(pauses) >= 3
    assert all(pause >= 0.1 * 2**n for n, pause in enumerate(pauses))


def test_a_supervised_one_that_runs_already_is_adopted(tmp_path: Path) -> None:
    process = Process("sleeper", SLEEP, tmp_path / "log")
    process.start()
    pid = process.pid
    with Supervisor() as supervisor:
        supervisor.add(process)
        eventually(lambda: supervisor.states() == {"sleeper": State.RUNNING})
        assert process.pid == pid
    assert gone(pid)


def test_stages_are_stopped_one_after_the_other_and_each_at_once(tmp_path: Path) -> None:
    """Stubborn ones of one stage take their time together; what they use is stopped last."""
    stubborn = ["sh", "-c", "trap '' TERM; echo up; while true; do sleep 0.1; done"]
    users = [Process(f"user-{n}", stubborn, tmp_path / f"user-{n}") for n in range(3)]
    server = Process("server", SLEEP, tmp_path / "server")
    order: list[str] = []
    supervisor = Supervisor(
        lambda process, state: order.append(process.name) if state is State.STOPPED else None
    )
    supervisor.start()
    supervisor.add(server)
    for user in users:
        supervisor.add(user, 1)
    eventually(lambda: server.running and all("up" in user.tail() for user in users))
    begin = time.monotonic()
    supervisor.stop(seconds=5)
    assert 5 <= time.monotonic() - begin < 15
    assert order[-1] == "server"
    assert sorted(order[:3]) == ["user-0", "user-1", "user-2"]
