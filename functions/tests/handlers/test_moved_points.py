"""Detections that the survey sent again under another object are marked in the earlier one."""

import csv
import io
from itertools import permutations
from pathlib import Path

import pyarrow as pa
import pytest

from stampede.config.settings import Settings
from stampede.errors import StoreDown
from stampede.handlers.compact import compact_tables
from stampede.handlers.moved_points import Alert, MovedPoints, objects_of_moved
from stampede.read.app import make_app
from stampede.store.open import open_objects
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.tables.table import Table
from tests.support.alerts import made_alerts
from tests.support.read.read_service import serving
from tests.support.store.stored_packets import store

SOURCE, OTHER = 170587115523932323, 170587115523932324
EARLIER, LATER, LAST = ("313853449953411123", "313853449953411999", "313853449953412222")


def alert(object_id: str, processed: float = 61000.0, source: int = SOURCE) -> bytes:
    record = made_alerts.rubin_record(1101, 3)
    numbers = {"diaSourceId": source, "diaObjectId": int(object_id), "timeWithdrawnMjdTai": None}
    record["diaSource"] |= numbers | {"timeProcessedMjdTai": processed}
    return made_alerts.confluent(
        record | {"prvDiaSources": None, "prvDiaForcedSources": None}, 1101
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(store=f"file://{tmp_path}/store", spool=tmp_path, refresh_seconds=0, fanout=2)


def points(settings: Settings) -> dict[tuple[str, int], bool | None]:
    table = Table(open_objects(settings), DETECTIONS, threads=1)
    rows = table.lookup([EARLIER, LATER, LAST]).to_pylist()
    return {(row["object_id"], row["source_id"]): row["moved"] for row in rows}


def marks(settings: Settings) -> int:
    """How many runs hold marks alone: those without coverage."""
    table = Table(open_objects(settings), DETECTIONS, threads=1)
    return sum(not part.coverage for part in table.listed())


@pytest.mark.parametrize("order", [*permutations([0, 1, 2])])
def test_the_point_of_the_earlier_object_is_marked(settings: Settings, order: tuple) -> None:
    sent = [alert(EARLIER), alert(LATER, 61000.5), alert(EARLIER, source=OTHER)]
    for number in order:
        store(settings, [sent[number]], number)
    store(settings, [alert(EARLIER, source=OTHER)], 3)  # so many runs are merged at once
    compact_tables(settings)
    expected = {(EARLIER, SOURCE): True, (LATER, SOURCE): None, (EARLIER, OTHER): None}
    assert points(settings) == expected
    for _ in range(3):
        compact_tables(settings)
    assert points(settings) == expected


def test_a_point_that_moves_back_is_no_longer_marked(settings: Settings) -> None:
    sent = [(EARLIER, 61000.0), (LATER, 61001.0), (EARLIER, 61002.0)]
    for number, version in enumerate(sent):
        store(settings, [alert(*version)], number)
        compact_tables(settings)
    store(settings, [alert(EARLIER, source=OTHER)], 3)
    compact_tables(settings)
    assert points(settings) == {
        (EARLIER, SOURCE): None,
        (LATER, SOURCE): True,
        (EARLIER, OTHER): None,
    }
    # An old delivery that comes again is older than the mark.
    store(settings, [alert(LATER, 61001.0)], 4)
    assert points(settings)[LATER, SOURCE]


def test_equal_processing_times_are_decided_by_the_object(settings: Settings) -> None:
    for number, object_id in enumerate((LATER, EARLIER, LAST, EARLIER)):
        store(settings, [alert(object_id)], number)
    compact_tables(settings)
    marked = {(EARLIER, SOURCE): True, (LATER, SOURCE): True}
    assert points(settings) == marked | {(LAST, SOURCE): None}


def test_a_crash_before_the_merge_is_written_repeats_the_mark(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, version in enumerate([(EARLIER, 61000.0), (LATER, 61001.0)]):
        store(settings, [alert(*version)], number)

    def fail(self: MovedPoints, rows: pa.Table) -> None:
        raise StoreDown("not now")

    with monkeypatch.context() as patched:
        patched.setattr(MovedPoints, "mark", fail)
        with pytest.raises(StoreDown, match="not now"):
            compact_tables(settings)
    assert points(settings)[EARLIER, SOURCE] is None
    compact_tables(settings)
    assert points(settings)[EARLIER, SOURCE]


def test_nothing_is_written_for_alerts_that_have_not_moved(settings: Settings) -> None:
    for number in range(4):
        store(settings, [alert(EARLIER, source=SOURCE + number), alert(EARLIER)], 2 * number)
    compact_tables(settings)
    assert marks(settings) == 0


def test_surveys_with_equal_ids_are_told_apart() -> None:
    def row(survey: str, object_id: str, alert_id: int) -> dict:
        empty = dict.fromkeys(CUTOUTS.schema.names)
        return empty | {
            "alert_id": alert_id,
            "survey": survey,
            "kind": "science",
            "object_id": object_id,
            "mjd": 61000.0,
        }

    rows = [row("lsst", "1", 7), row("ztf", "ZTF18", 7), row("lsst", "1", 8), row("lsst", "2", 8)]
    assert objects_of_moved(pa.Table.from_pylist(rows, CUTOUTS.schema)) == {
        Alert("lsst", 8): {"1", "2"}
    }


def test_the_mark_is_in_every_format_and_on_the_page(settings: Settings) -> None:
    for number, version in enumerate([(EARLIER, 61000.0), (LATER, 61001.0)]):
        store(settings, [alert(*version)], number)
    compact_tables(settings)
    for read in serving(make_app(settings)):
        [shown] = read(f"/v1/objects/{EARLIER}/lightcurve").json()["detections"]
        assert shown["moved"] is True
        text = read(f"/v1/objects/{EARLIER}/lightcurve?format=csv").data.decode()
        assert next(csv.DictReader(io.StringIO(text)))["moved"] == "true"
        page = read(f"/objects/{EARLIER}").data.decode()
        assert "moved to another object" in page
        assert "moved to another object" not in read(f"/objects/{LATER}").data.decode()
