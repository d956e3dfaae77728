"""Which system a command uses."""

import json
import os
from pathlib import Path

import pytest

from stampede.cli.running import running

URLS = {"cutouts": "http://cutouts.test", "lightcurves": "http://lightcurves.test"}


def test_without_a_running_system_it_is_none(tmp_path: Path) -> None:
    assert running(tmp_path) is None


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
