"""The files through which batches reach the workers."""

import gc
import shutil
import sys
import warnings
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


def test_a_file_goes_with_its_object_in_silence(tmp_path: Path) -> None:
    """In a cycle too, of which Python may finalize the open file first."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        file = SpoolFile(tmp_path)
        Path(file.write([b"a"])).unlink()
        file.write([b"b"])
        assert len([*tmp_path.iterdir()]) == 1
        cycle: list[object] = [file, file._file, file._file.file]
        cycle.append(cycle)
        del cycle, file
        gc.collect()
    assert not [*tmp_path.iterdir()]
    assert [str(each.message) for each in warned if each.category is ResourceWarning] == []
