"""Which system a command uses."""

import json
import os
from pathlib import Path

import pytest

from stampede.cli import running as module
from stampede.cli.running import running, settings_of
from stampede.errors import SetupError

URLS = {"cutouts": "http://cutouts.test", "lightcurves": "http://lightcurves.test"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The usual directory of `stampede up`, empty."""
    monkeypatch.setattr(module, "DATA", tmp_path / "home")
    monkeypatch.setattr(module, "OTHERS", tmp_path / "home" / "others")
    monkeypatch.delenv("STAMPEDE_STORE", raising=False)
    return tmp_path / "home"


def up_in(data: Path, pid: int) -> None:
    """What a `stampede up` leaves that keeps its data in a directory of its own."""
    data.mkdir()
    (data / "up.json").write_text(json.dumps({"pid": pid, "urls": {}, "store": f"file://{data}"}))
    module.OTHERS.mkdir(parents=True, exist_ok=True)
    (module.OTHERS / f"{data.name}").write_text(str(data))


def test_without_a_running_system_it_is_none(tmp_path: Path) -> None:
    assert running(tmp_path) is None
    assert running() is None


def test_no_system_and_no_store_is_an_error_that_names_the_ways_out() -> None:
    with pytest.raises(SetupError, match=r"no `stampede up` runs here.*--data.*STAMPEDE_STORE"):
        settings_of(running())


def test_the_store_of_the_environment_needs_no_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAMPEDE_STORE", "file:///mine")
    assert settings_of(running()).store == "file:///mine"


def test_a_system_elsewhere_is_found(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    up_in(tmp_path / "a", os.getpid())
    up_in(tmp_path / "dead", 2**22 + 1)  # more than a pid can be
    found = running()
    assert found
    assert found.settings.store == f"file://{tmp_path}/a"
    printed = capsys.readouterr()
    assert printed.err == f"using the `stampede up` of {tmp_path}/a\n"
    assert not printed.out


def test_a_system_elsewhere_does_not_replace_what_the_user_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    up_in(tmp_path / "a", os.getpid())
    assert running(tmp_path / "b") is None
    monkeypatch.setenv("STAMPEDE_STORE", "file:///mine")
    assert running() is None


def test_of_several_systems_one_must_be_chosen(tmp_path: Path) -> None:
    up_in(tmp_path / "a", os.getpid())
    up_in(tmp_path / "b", os.getppid())
    with pytest.raises(SetupError, match=rf"choose one with --data: {tmp_path}/a, {tmp_path}/b"):
        running()
    assert running(tmp_path / "b")


def test_the_system_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAMPEDE_FUNCTIONS", json.dumps(URLS))
    monkeypatch.setenv("STAMPEDE_STORE", "http://store.test/bucket")
    found = running(tmp_path)
    assert found
    assert found.urls == URLS
    assert found.settings.store == "http://store.test/bucket"


def test_a_running_stampede_up_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAMPEDE_FUNCTIONS", json.dumps(URLS))
    up = {"pid": os.getpid(), "urls": {"read": "http://here.test"}, "store": "file:///here"}
    (tmp_path / "up.json").write_text(json.dumps(up))
    found = running(tmp_path)
    assert found
    assert found.urls == up["urls"]
    assert found.settings.store == "file:///here"
