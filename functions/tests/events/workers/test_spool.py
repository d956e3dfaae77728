"""The files through which batches reach the workers."""

import gc
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from stampede.events.workers.spool import SpoolFile


def test_a_file_is_deleted_with_its_object(tmp_path: Path) -> None:
    file = SpoolFile(tmp_path)
    assert Path(file.write([b"a", b"bc"])).read_bytes() == b"abc"
    del file
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_was_removed_before_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python prints what a finalizer raises, and goes on."""
    printed: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)
    folder = tmp_path / "spool"
    folder.mkdir()
    file = SpoolFile(folder)
    file.write([b"a"])
    shutil.rmtree(folder)
    folder.mkdir()
    assert Path(file.write([b"b"])).read_bytes() == b"b"  # a new file
    shutil.rmtree(folder)
    del file
    gc.collect()
    assert printed == []
