"""One bad object in a table does not stop the HTTP API: the rest is served."""

from collections.abc import Callable

import pytest
from prometheus_client import REGISTRY

from stampede.config.settings import Settings
from stampede.read.app import make_app
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from tests.support.read.read_service import (
    ZTF_ALERT,
    ZTF_OBJECT,
    draw,
    fill,
    sample_cutouts,
    sample_points,
    serving,
)
from tests.support.store.rows import detection, table

COVERAGE = Coverage.of({("alerts", 0): range(4)})
NAME = "0000-" + "ef" * 16 + ".parquet"
PATHS = (
    f"/v1/objects/{ZTF_OBJECT}/lightcurve",
    f"/v1/alerts/{ZTF_ALERT}",
    f"/v1/alerts/{ZTF_ALERT}/cutouts/science",
    f"/v1/alerts/{ZTF_ALERT}/thumbnail",
    f"/objects/{ZTF_OBJECT}",
    "/v1/ledger",
    "/health/readiness",
)


def bad_runs(objects: MemoryObjects) -> None:
    for name in ("cutouts", "detections", "thumbnails"):
        key = next(info.key for info in objects.list(f"tables/{name}/"))
        objects.put(f"tables/{name}/{NAME}", objects.get(key)[:-1])


def bad_dead_letters(objects: MemoryObjects) -> None:
    objects.put("deadletters/cutouts/" + "ef" * 16 + ".parquet", b"garbage")
    objects.put("expected/files", b"garbage")


def long_object_ids(objects: MemoryObjects) -> None:
    one = Table(objects, DETECTIONS)
    for letter in "0Zz":
        one.append(table([detection(letter * 5000, 1)]), Coverage())


@pytest.mark.parametrize("harm", [bad_runs, bad_dead_letters, long_object_ids])
def test_everything_else_is_served(harm: Callable[[MemoryObjects], None]) -> None:
    objects = MemoryObjects()
    fill(objects, sample_cutouts(), sample_points(), COVERAGE)
    draw(objects, sample_cutouts(), COVERAGE)
    harm(objects)
    for read in serving(make_app(Settings(), objects)):
        for path in PATHS:
            response = read(path)
            assert response.status == 200, (path, response.data)
        assert read("/v1/objects/unknown/lightcurve").status == 404
    if harm is bad_runs:
        for name in ("cutouts", "detections", "thumbnails"):
            labels = {"table": name}
            # Other stores of this process may count too.
            assert (REGISTRY.get_sample_value("stampede_quarantined_objects", labels) or 0) >= 1
