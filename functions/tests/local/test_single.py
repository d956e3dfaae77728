"""One `stampede up` in a directory."""

import os
from pathlib import Path

import pytest

from stampede.cli import running
from stampede.errors import SetupError
from stampede_local import single
from stampede_local.single import announced, only_one


def test_a_second_one_is_told_the_pid_of_the_first(tmp_path: Path) -> None:
    with only_one(tmp_path):
        for _ in range(2):  # a refusal changes nothing
            with pytest.raises(SetupError, match=f"already running, pid {os.getpid()}: "):
                only_one(tmp_path).__enter__()
    with only_one(tmp_path):
        pass


def test_one_that_was_killed_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "up.lock").write_text("1")  # a pid that runs, but does not hold the file
    with only_one(tmp_path):
        assert (tmp_path / "up.lock").read_text() == str(os.getpid())


def test_only_a_system_elsewhere_is_announced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setattr(single, "DATA", home)
    monkeypatch.setattr(single, "OTHERS", home / "others")
    with announced(home):
        assert not home.exists()
    with announced(tmp_path / "else"):
        (note,) = (home / "others").iterdir()
        assert note.read_text() == str(tmp_path / "else")
    assert not list((home / "others").iterdir())
    assert running.OTHERS == running.DATA / "others"
