"""The sample store with positions, so that a cone finds its objects."""

from collections.abc import Iterator

import pyarrow as pa
import pytest

from stampede.alerts.columns import DETECTION
from stampede.alerts.positions import positions_of
from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import POSITIONS
from stampede.store.tables.table import Table
from tests.support.read.read_service import Reader, sample_points, sample_store, serving


@pytest.fixture(scope="module")
def compatible() -> Iterator[Reader]:
    objects = sample_store()
    points = pa.Table.from_pylist(sample_points(), DETECTION)
    Table(objects, POSITIONS).append(positions_of(points), Coverage.of({("ztf", 0): [1]}))
    yield from serving(make_app(Settings(), objects))
