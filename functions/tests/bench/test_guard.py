"""What must not grow unseen: bytes and requests of an alert, and CPU time beside a rival's.

Counts are the same on every machine, and ratios within one run nearly so, where rates are not.
Each bound leaves a tenth or, of CPU time, a half: a change that breaks one is a clear loss, to be
mended or, where it buys something, to be written down together with the new bound.
"""

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from stampede.alerts.columns import KINDS
from stampede.events.event import Position
from stampede.events.worker import Batch
from stampede.functions import cutouts, lightcurves
from stampede.read.lookup import Lookup
from stampede.settings import Settings
from stampede.store.compaction import compact
from stampede.store.memory import MemoryObjects
from stampede.store.packs import read_rows
from stampede.store.schema import CUTOUTS, DETECTIONS
from stampede.store.tables import Table
from stampede_bench import decode, load
from stampede_bench.load import Load
from tests.support.watched_objects import Watched

pytestmark = pytest.mark.integration  # some seconds

ALERTS = 300  # a flush, as `Settings.in_flight` makes them
HISTORY = 50  # rows
# Of fastavro's CPU time, all that a worker does, and the reading of records alone.
MOST_CPU = {"cutouts": {"lsst": 0.8, "ztf": 0.45}, "lightcurves": {"lsst": 0.5, "ztf": 0.45}}
MOST_READING = 0.25


@pytest.fixture(scope="module", params=["lsst", "ztf"])
def given(request: pytest.FixtureRequest) -> Load:
    return load.simulated(request.param, ALERTS, HISTORY)


@pytest.fixture
def objects() -> Watched:
    return Watched(MemoryObjects())


@pytest.fixture
def flush(
    objects: Watched, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[object, Load, int], None]:
    """Has a function store all alerts, in so many flushes."""

    def run(function, given: Load, flushes: int) -> None:
        monkeypatch.setattr(function, "open_objects", lambda settings: objects)
        work = function.make_batch_storer(Settings(spool=tmp_path))
        for number in range(flushes):
            messages = given.messages[number::flushes]
            positions = [Position("topic", 0, n * flushes + number) for n in range(len(messages))]
            assert work(Batch(messages, positions, False)).verdicts == [None] * len(messages)

    return run


def bytes_of(objects: Watched, prefix: str) -> int:
    return sum(info.size for info in objects.inner.list(prefix))


def test_a_flush_of_cutouts_is_two_requests_and_the_images_bytes(given, objects, flush) -> None:
    flush(cutouts, given, 1)
    assert [operation for operation, _ in objects.calls] == ["put", "put"]
    (pack,) = objects.inner.list("packs/")
    rows, _ = read_rows(objects.inner.get(pack.key))
    images = sum(len(each) for each in rows["fits"].to_pylist() if each)
    assert pack.size <= 1.005 * images  # measured: 1.002
    assert bytes_of(objects, "tables/cutouts/") <= 50 * ALERTS


def test_a_flush_of_light_curves_is_two_requests_and_little(given, objects, flush) -> None:
    flush(lightcurves, given, 1)
    assert [operation for operation, _ in objects.calls] == ["put", "put"]
    assert bytes_of(objects, "") <= 1_450 * ALERTS  # measured: 1,306 LSST, 1,013 ZTF


def test_reading_asks_the_store_little(given, objects, flush) -> None:
    flush(cutouts, given, 8)
    flush(lightcurves, given, 8)
    lookup = Lookup(objects, Settings(refresh_seconds=3600))
    picked = random.Random(1).sample(given.ids, 50)

    def requests(work: Callable) -> float:
        before = len(objects.calls)
        for alert_id, object_id in picked:
            assert work(alert_id, object_id)
        return (len(objects.calls) - before) / len(picked)

    def cutout(alert_id: int, _: str) -> bytes:
        return lookup.fits(lookup.cutout(alert_id, "science"))

    def light_curve(_: int, object_id: str) -> pa.Table:
        return lookup.light_curves([object_id])

    requests(cutout), requests(light_curve)  # the index is in memory then
    assert requests(cutout) == 1
    assert requests(light_curve) == 0
    # All that there is: neighbours come in one request.
    before = len(objects.calls)
    places = lookup.locations([alert_id for alert_id, _ in given.ids])
    assert sum(data is not None for _, data in lookup.all_fits(places)) >= len(given.ids)
    assert len(objects.calls) - before <= len(KINDS) * len(given.ids) / 50
    lookup.close()


def test_compaction_writes_each_byte_once_a_level(given, objects, flush) -> None:
    flush(cutouts, given, 8)
    flush(lightcurves, given, 8)
    for spec in (CUTOUTS, DETECTIONS):
        prefix = f"tables/{spec.name}/"
        inputs = {info.key for info in objects.inner.list(prefix)}
        stored, before = bytes_of(objects, prefix), len(objects.calls)
        table = Table(objects, spec)
        compact(table, datetime.now(UTC), fanout=8, grace=timedelta(days=1))
        table.close()
        merged = [info for info in objects.inner.list(prefix) if info.key not in inputs]
        assert len(merged) == 1
        assert merged[0].size <= 1.1 * stored
        assert len(objects.calls) - before <= 12 * len(inputs)


def test_decoding_is_much_cheaper_than_with_fastavro(given) -> None:
    """CPU time of all that a worker does, in units of fastavro's for the record alone.

    The least of some rounds: what others do on the machine makes it more, never less. LSST's
    cutouts are deflated, which fastavro does not do.
    """
    few = given._replace(messages=given.messages[:100])
    list(decode.stages(few))  # memory is had from the kernel once
    figures = [figure for _ in range(5) for figure in decode.stages(few)]
    for function, most in MOST_CPU.items():
        for name, bound in (("all", most[given.survey]), (decode.READ, MOST_READING)):
            found = [
                figure.ratio
                for figure in figures
                if figure.subject.startswith(function) and figure.name == name
            ]
            assert min(found) <= bound, (function, name, found)
