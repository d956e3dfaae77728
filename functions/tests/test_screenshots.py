"""The pictures of the documentation show the pages as they are."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tools.docs.screenshots import HEIGHT, IMAGES, PICTURES, WIDTH, take

from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede_simulator.cli import simulate
from tests.support.read.read_service import serving
from tests.support.store.stored_packets import store

CELL = 20
"""Pixels of a cell, in which other fonts look alike."""


def cells(path: Path) -> np.ndarray:
    """The mean brightness of each cell of a picture, shape (rows, columns)."""
    pixels = np.asarray(Image.open(path).convert("L"), float)
    assert pixels.shape == (HEIGHT, WIDTH)
    return pixels.reshape(HEIGHT // CELL, CELL, WIDTH // CELL, CELL).mean((1, 3))


def test_each_picture_is_made_by_the_tool() -> None:
    assert {path.name for path in IMAGES.iterdir()} == set(PICTURES)


@pytest.mark.integration
@pytest.mark.skipif(shutil.which("chromium") is None, reason="needs chromium")
def test_the_pictures_are_those_of_the_pages(tmp_path: Path) -> None:
    pytest.importorskip("playwright.sync_api")
    alerts = tmp_path / "alerts"
    simulate(to=str(alerts), alerts=300, objects=5)  # as in the tutorial
    settings = Settings(store=f"file://{tmp_path}/store", spool=tmp_path)
    store(settings, [path.read_bytes() for path in sorted(alerts.rglob("*.avro"))])
    for read in serving(make_app(settings)):
        take(read.url, tmp_path / "pictures")
    for name in PICTURES:
        found, shown = cells(tmp_path / "pictures" / name), cells(IMAGES / name)
        differ = np.abs(found - shown) > 25
        assert differ.mean() < 0.02, f"{name}: run python -m tools.docs.screenshots"
