"""Commands, and the messages when they fail."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from e2e.cluster.places import ROOT
from e2e.cluster.steps import Failed, exclusive_use, run, step, tail, wait_until


def test_standard_output_is_returned(tmp_path: Path) -> None:
    output = run("sh", "-c", "cat; echo aside >&2", stdin=b"given", log=tmp_path / "log")
    assert output == "given"
    assert (tmp_path / "log").read_text() == "aside\n"


def test_a_failure_shows_the_end_of_the_log_and_advice(tmp_path: Path) -> None:
    script = "for i in $(seq 100); do echo line $i >&2; done; exit 7"
    with pytest.raises(Failed) as failed:
        run("sh", "-c", script, log=tmp_path / "log", advice="turn it off and on")
    message = str(failed.value)
    assert "status 7" in message
    assert str(tmp_path / "log") in message
    assert "line 100\nturn it off and on" in message
    assert "line 80\n" not in message


def test_a_command_need_not_read_its_input(tmp_path: Path) -> None:
    run("true", stdin=b"x" * 1_000_000, log=tmp_path / "log")


def test_processes_of_a_command_end_with_it(tmp_path: Path) -> None:
    begin = time.monotonic()
    pid = int(run("sh", "-c", "sleep 60 >&2 & echo $!", log=tmp_path / "log"))
    assert time.monotonic() - begin < 30
    wait_until(lambda: not runs(pid), 10, lambda: Failed(f"{pid} still runs"))


def test_an_interrupt_ends_the_command(tmp_path: Path) -> None:
    script = f"""
from pathlib import Path
from e2e.cluster.steps import run
run("sh", "-c", "echo $$ >&2; exec sleep 60", log=Path({str(tmp_path / "log")!r}))
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.PIPE
    ) as child:
        wait_until(lambda: tail(tmp_path / "log") != "", 30, lambda: Failed("it did not start"))
        pid = int(tail(tmp_path / "log"))
        assert runs(pid)
        time.sleep(1)  # on a busy machine the program may run before Popen has returned
        child.send_signal(2)
        assert child.wait(30) != 0
    assert not runs(pid)


def test_waiting_ends_with_an_error() -> None:
    with pytest.raises(Failed, match="no luck"):
        wait_until(lambda: False, 0.2, lambda: Failed("no luck"))


def test_a_step_is_printed_when_it_begins(capsys: pytest.CaptureFixture[str]) -> None:
    with step("the long one"):
        assert "the long one" in capsys.readouterr().err


def test_only_one_process_uses_the_cluster(place: Path) -> None:
    with exclusive_use():
        mine = f"process {os.getpid()}: wait for it, or stop it"
        with pytest.raises(Failed, match=mine), exclusive_use():
            pass
    with exclusive_use():
        pass


def runs(pid: int) -> bool:
    """Whether a process runs and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
