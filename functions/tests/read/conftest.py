"""A small store with invented alerts, and the read service over it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from tests.support.read.read_service import Reader, sample_store, serving


@pytest.fixture(scope="session")
def store() -> MemoryObjects:
    return sample_store()


@pytest.fixture(scope="session")
def read(store) -> Iterator[Reader]:
    yield from serving(make_app(Settings(), store))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A store of its own, a folder, which is listed at each request."""
    return Settings(store=f"file://{tmp_path}/store", spool=tmp_path, refresh_seconds=0)
