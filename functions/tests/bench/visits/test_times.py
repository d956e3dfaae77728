import time

import numpy as np
import pytest

from stampede.errors import StampedeError
from stampede.store.objects.memory import MemoryObjects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, PACKETS
from stampede.store.tables.table import Table
from stampede_bench.visits.sender import Sent
from stampede_bench.visits.times import SPECS, DurableTimes

KEY = "visits@an-id"


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


def append(objects: MemoryObjects, spec, first: int, end: int, key: str = KEY) -> None:
    """A run of these offsets of partition 0; its rows do not matter."""
    table = Table(objects, spec)
    table.append(spec.schema.empty_table(), Coverage({(key, 0): np.array([[first, end]])}))
    table.close()


def sent(count: int) -> Sent:
    return Sent(np.zeros(count, np.int64), np.arange(count), np.zeros(count))


def test_an_alert_is_durable_once_all_tables_hold_it(objects: MemoryObjects) -> None:
    times = DurableTimes(objects, "visits", 10)
    begin = time.time()
    for spec in SPECS:
        append(objects, spec, 0, 2)
    append(objects, CUTOUTS, 2, 4)
    append(objects, DETECTIONS, 2, 4, "others@an-id")
    times.look()
    assert times.tables == ["cutouts", "detections", "packets"]
    durable = times.durable(sent(4))
    assert (begin - 1 < durable[:2]).all()
    assert (durable[:2] < time.time() + 1).all()
    assert np.isinf(durable[2:]).all()
    assert np.isfinite(times.of("cutouts", sent(4))).all()
    assert times.stored() == 2
    times.close()


def test_a_repeated_event_counts_when_it_was_stored_first(objects: MemoryObjects) -> None:
    times = DurableTimes(objects, "visits", 10)
    for spec in SPECS:
        append(objects, spec, 0, 2)
    first = times.wait(sent(2))
    time.sleep(0.01)
    for spec in SPECS:
        append(objects, spec, 0, 3)
    again = times.wait(sent(3))
    assert (again[:2] == first).all()
    assert again[2] > first[1]
    times.close()


def test_it_gives_up_when_nothing_more_is_stored(
    objects: MemoryObjects, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stampede_bench.visits.times.STALLED_SECONDS", 0.05)
    monkeypatch.setattr("stampede_bench.visits.times.LOOK_SECONDS", 0.01)
    times = DurableTimes(objects, "visits", 10)
    append(objects, PACKETS, 0, 3)
    with pytest.raises(StampedeError, match="3 alerts were not stored"):
        times.wait(sent(3))
    times.close()
