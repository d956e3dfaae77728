"""The read service over all real alerts."""

from collections.abc import Iterator

import pytest

from stampede.config.settings import Settings
from stampede.read.app import make_app
from tests.support.alerts import made_alerts
from tests.support.read.read_service import Reader, serving
from tests.support.store.stored_packets import store


@pytest.fixture(scope="session")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    folder = tmp_path_factory.mktemp("real")
    settings = Settings(store=f"file://{folder}/store", spool=folder)
    store(settings, made_alerts.real_alerts())
    yield from serving(make_app(settings))
