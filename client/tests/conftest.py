"""A small store with invented alerts, and the read service over it."""

from collections.abc import Iterator

import pytest

import stampede_client
from stampede.read.app import make_app
from stampede.settings import Settings
from stampede.store.coverage import Coverage
from stampede.store.memory import MemoryObjects
from stampede_client import Client, retries
from tests.support.read_service import (
    BOTH,
    ZTF_ALERT,
    ZTF_OBJECT,
    draw,
    fill,
    keep,
    sample_cutouts,
    sample_points,
    serving,
)


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    objects, coverage = MemoryObjects(), Coverage.of({("ztf", 0): [1, 2, 5]})
    fill(objects, sample_cutouts(), sample_points(), coverage)
    draw(objects, [row for row in sample_cutouts() if row["alert_id"] == BOTH], coverage)
    keep(objects, ZTF_ALERT, ZTF_OBJECT, 59400.0)
    for reader in serving(make_app(Settings(), objects)):
        yield reader.url


@pytest.fixture
def st(url: str) -> Iterator[Client]:
    with stampede_client.connect(url) as client:
        yield client


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_WAIT", 0.001)
