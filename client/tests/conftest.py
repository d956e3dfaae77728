"""A small store with invented alerts, and the read service over it."""

from collections.abc import Iterator

import pytest

import stampede_client
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede_client import Client, retries
from tests.support import surroundings, tested_with
from tests.support.read.read_service import sample_store, serving


def pytest_configure(config: pytest.Config) -> None:
    tested_with.register(config)
    surroundings.register(config)


@pytest.fixture(scope="session")
def url() -> Iterator[str]:
    for reader in serving(make_app(Settings(), sample_store())):
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
