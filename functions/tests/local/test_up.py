"""`stampede up` keeps looking, whatever it finds in the store."""

import io
import os
import signal
import threading
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar, cast

import pytest
from rich.console import Console

from stampede.config.settings import Settings
from stampede.handlers.audit.status import View
from stampede_local import up
from stampede_local.supervisor import State
from stampede_local.up import watch
from tests.support.waiting import eventually


@pytest.mark.parametrize(
    "key",
    [
        "tables/detections/0000-" + "ef" * 16 + ".parquet",
        "tables/cutouts/0003-" + "ef" * 16 + "-1of8.parquet",
        "deadletters/cutouts/" + "ef" * 16 + ".parquet",
        "expected/files",
    ],
)
@pytest.mark.parametrize(
    "data", [b"", b"garbage" * 99, b"PAR1" * 99], ids=["empty", "garbage", "x"]
)
def test_a_bad_object_does_not_end_the_watch(tmp_path, key: str, data: bytes) -> None:
    path = tmp_path / "bucket" / key
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    stop, output = threading.Event(), io.StringIO()
    views = watch(system_on(tmp_path / "bucket"), Console(file=output), 0.01, stop)
    for _ in range(3):
        assert {flow.function for flow in next(views).flows} == {"cutouts", "lightcurves"}
    stop.set()
    assert output.getvalue() == ""


def system_on(bucket: Path) -> up.System:
    """A system without processes, whose store is a directory."""
    made = SimpleNamespace(
        settings=Settings(store=f"file://{bucket}"),
        urls={},
        supervisor=SimpleNamespace(states=dict),
    )
    return cast("up.System", made)


@pytest.mark.timeout(30)
def test_a_signal_ends_the_watch_on_a_busy_machine(tmp_path) -> None:
    """Handling the signal takes until the watch looks again, and longer."""
    stop = threading.Event()

    def handle(*_: object) -> None:
        time.sleep(2 * up.WAIT_SECONDS)
        stop.set()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        views = watch(system_on(tmp_path), Console(file=io.StringIO()), 600, stop)
        next(views)
        signalled = threading.Timer(up.WAIT_SECONDS / 2, os.kill, (os.getpid(), signal.SIGUSR1))
        signalled.start()
        assert not list(views)
        signalled.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_without_a_terminal_it_prints_a_line_only_when_it_changes(monkeypatch) -> None:
    quarantined = [[], [], ["a"], ["a"], []]
    views = [View({}, [], {}, keys) for keys in quarantined]
    monkeypatch.setattr(up, "watch", lambda *_: iter(views))
    output = io.StringIO()
    up.show(system_on(Path("none")), Console(file=output), threading.Event())
    assert output.getvalue() == "\nin quarantine: a\n\n"


def test_a_process_that_runs_and_does_not_answer_is_not_ready(tmp_path) -> None:
    system = system_on(tmp_path)
    system.urls = {"alerts": "http://127.0.0.1:1", "read": "http://127.0.0.1:1"}
    states = {"kafka": State.RUNNING, "alerts": State.RUNNING, "read": State.WAITING}
    system.supervisor.states = lambda: states
    found = {"kafka": "running", "alerts": "not ready", "read": "waiting"}
    assert up.states_of_up(system) == found


class System:
    """A system that gets a signal while it starts, or does not."""

    urls: ClassVar = {"read": "http://127.0.0.1:1"}
    done: ClassVar[list[str]] = []
    signal: ClassVar[int | None] = None

    def __init__(self, *_: object) -> None:
        self.done.append("started")

    def __enter__(self) -> "System":
        if self.signal:
            os.kill(os.getpid(), self.signal)
        return self

    def __exit__(self, *_: object) -> None:
        self.done.append("stopped")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_it_starts_is_an_interrupt(monkeypatch, number: int) -> None:
    monkeypatch.setattr(up, "System", System)
    monkeypatch.setattr(System, "signal", number)
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt):
        up.up(None, Console(file=io.StringIO()))
    assert signal.getsignal(number) == before


def test_a_second_ctrl_c_is_told_that_it_stops(monkeypatch) -> None:
    output = io.StringIO()

    def stop_twice(system, console, stop) -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.wait(10)

    monkeypatch.setattr(up, "System", System)
    monkeypatch.setattr(up, "timer", lambda system: nullcontext())
    monkeypatch.setattr(up, "show", stop_twice)
    up.up(None, Console(file=output, width=200))
    eventually(lambda: "still stopping" in output.getvalue())
    assert output.getvalue().count("still stopping") == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_well_as_soon_as_it_says_ready(monkeypatch, number: int) -> None:
    class Told(io.StringIO):
        def write(self, text: str) -> int:
            if "ready" in text:
                os.kill(os.getpid(), number)
            return super().write(text)

    monkeypatch.setattr(up, "System", System)
    monkeypatch.setattr(up, "timer", lambda system: nullcontext())
    monkeypatch.setattr(up, "show", lambda system, console, stop: seen.append(stop.wait(10)))
    monkeypatch.setattr(System, "done", [])
    seen: list[bool] = []
    up.up(None, Console(file=Told()))
    assert seen == [True]
    assert System.done == ["started", "stopped"]
