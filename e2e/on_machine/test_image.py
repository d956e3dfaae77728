"""The functions' image, built without Docker: the same sources give the same bytes."""

import hashlib
import json
import os
import subprocess
import tarfile
import tempfile
from pathlib import Path

import pytest

from e2e.places import ROOT

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(os.geteuid() != 0, reason="a chroot needs root"),
]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def build(archive: Path, cache: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    command: list[str | Path] = [ROOT / "tools" / "image", archive, "--builder", "chroot"]
    subprocess.run(command, env=environment, check=True)


def debian_alone(cache: Path) -> None:
    """Fill a cache with the layers that have nothing of Stampede: those of Debian's packages."""
    (target := cache / "stampede" / "images" / "layers").mkdir(parents=True)
    for layer in (CACHE / "stampede" / "images" / "layers").iterdir():
        if not (layer / "files" / "opt" / "stampede").exists():
            subprocess.run(["cp", "-al", layer, target], check=True)


def digest(archive: Path) -> str:
    with archive.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def test_an_image_built_twice_is_the_same_bytes(tmp_path: Path) -> None:
    """Dependencies and Stampede are installed twice, Debian's packages once: they take minutes."""
    build(tmp_path / "one.tar", CACHE)
    with tempfile.TemporaryDirectory(dir=CACHE) as other:
        debian_alone(Path(other))
        before = {path.name for path in (Path(other) / "stampede/images/layers").iterdir()}
        build(tmp_path / "two.tar", Path(other))
        after = {path.name for path in (Path(other) / "stampede/images/layers").iterdir()}
    assert len(after - before) >= 3  # dependencies, Stampede's bytecode, both together
    with tarfile.open(tmp_path / "one.tar") as tar:
        manifest = tar.extractfile("manifest.json")
        assert manifest is not None
        assert len(json.load(manifest)[0]["Layers"]) == 4
    assert digest(tmp_path / "one.tar") == digest(tmp_path / "two.tar")
