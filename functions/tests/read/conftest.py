"""A small store with invented alerts, and the read service over it."""

from collections.abc import Iterator

import pytest

from stampede.read.app import make_app
from stampede.settings import Settings
from stampede.store.coverage import Coverage
from stampede.store.memory import MemoryObjects
from tests.support.read_service import (
    BOTH,
    ZTF_ALERT,
    ZTF_OBJECT,
    Reader,
    draw,
    fill,
    keep,
    sample_cutouts,
    sample_points,
    serving,
)


@pytest.fixture(scope="session")
def store() -> MemoryObjects:
    objects = MemoryObjects()
    coverage = Coverage.of({("ztf", 0): [1, 2, 5]})
    fill(objects, sample_cutouts(), sample_points(), coverage)
    draw(objects, [row for row in sample_cutouts() if row["alert_id"] == BOTH], coverage)
    keep(objects, ZTF_ALERT, ZTF_OBJECT, 59400.0)
    return objects


@pytest.fixture(scope="session")
def read(store) -> Iterator[Reader]:
    yield from serving(make_app(Settings(), store))
