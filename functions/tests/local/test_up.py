"""`stampede up` keeps looking, whatever it finds in the store."""

import io
import os
import signal
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from rich.console import Console

from stampede.settings import Settings
from stampede_local import up
from stampede_local.up import watch


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
    system = SimpleNamespace(
        settings=Settings(store=f"file://{tmp_path}/bucket"),
        urls={},
        supervisor=SimpleNamespace(states=dict),
    )
    stop, output = threading.Event(), io.StringIO()
    views = watch(system, Console(file=output), 0.01, stop)
    for _ in range(3):
        assert {flow.function for flow in next(views).flows} == {"cutouts", "lightcurves"}
    stop.set()
    assert output.getvalue() == ""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("starting", [True, False])
def test_a_signal_ends_it_cleanly_at_any_moment(monkeypatch, number: int, starting: bool) -> None:
    """Also just before the system is ready; what was started is stopped."""
    done = []

    @contextmanager
    def running_system(*_: object):
        done.append("started")
        try:
            if starting:
                os.kill(os.getpid(), number)
            yield None
        finally:
            done.append("stopped")

    def show(_: object, __: object, stop: threading.Event) -> None:
        os.kill(os.getpid(), number)
        assert stop.wait(10)
        done.append("shown")

    monkeypatch.setattr(up, "running_system", running_system)
    monkeypatch.setattr(up, "show", show)
    before = signal.getsignal(number)
    up.up(None, Console(file=io.StringIO()))
    assert done == (["started", "stopped"] if starting else ["started", "shown", "stopped"])
    assert signal.getsignal(number) == before
