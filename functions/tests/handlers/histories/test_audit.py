"""What histories know, of simulated alerts: what was lost before Kafka is named, and nothing else.

The store has what the decoder makes of the alerts' bytes.
"""

import os
import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from stampede.errors import Damaged
from stampede.handlers.histories.audit import EARLIER, HistoriesAudit, scan
from stampede.handlers.histories.causes import Cause
from stampede.handlers.histories.missing import Group
from stampede.runtime.clock import mjd
from stampede.store.compaction.compact import Policy, compact
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, PACKETS
from stampede.store.tables.table import Table
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.simulator import Fields, Simulator
from tests.support.alerts import lost_detector, told_alerts
from tests.support.alerts.told_alerts import Id, exposure_of, id_of, told
from tests.support.store import rows as made

pytestmark = pytest.mark.long  # thousands of alerts
UNIX_EPOCH = 40_587  # MJD


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture(scope="module")
def some() -> list[SimulatedAlert]:
    """Simulated once: that takes 2 ms an alert. A detector has about 16 of a visit."""
    return simulated(1_500, Fields(20))


def simulated(count: int, fields: Fields) -> list[SimulatedAlert]:
    """Without the images that they are compared with elsewhere: 80 KB an alert."""
    alerts = Simulator(5, fields, keep_light_curves=False).alerts(count)
    return [replace(alert, fits={}) for alert in alerts]


def groups_of(objects: Objects, since: int | None = None, **most: Any) -> list[Group]:
    audit = HistoriesAudit(objects, **most)
    try:
        return list(audit.groups(since))
    finally:
        audit.close()


def named(groups: Iterable[Group], cause: Cause = Cause.UNEXPLAINED) -> set[Id]:
    return {(each.survey, number) for each in groups if each.cause is cause for number in each.ids}


def with_losses(
    alerts: Sequence[SimulatedAlert], lost: int = 40, most: int = 30
) -> tuple[list[SimulatedAlert], list[SimulatedAlert], told_alerts.Exposure]:
    """Alerts without one whole detector of a visit in their first half, and without others."""
    detector = told_alerts.common_exposure(alerts, most)
    gone = [alert for alert in alerts if exposure_of(alert) == detector]
    rest = [alert for alert in alerts if exposure_of(alert) != detector]
    gone += random.Random(7).sample(rest, lost - len(gone))
    ids = {*map(id_of, gone)}
    return [alert for alert in alerts if id_of(alert) not in ids], gone, detector


@pytest.mark.parametrize(
    ("count", "lost", "most"),
    [(1_500, 40, 30), pytest.param(10_000, 100, 90, marks=pytest.mark.nightly)],
)
def test_alerts_that_were_dropped_before_kafka_are_named(
    objects: MemoryObjects, tmp_path: Path, some, count: int, lost: int, most: int
) -> None:
    sent, gone, detector = with_losses(
        some if count == len(some) else simulated(count, Fields()), lost, most
    )
    told_alerts.store(objects, sent, tmp_path)
    found = groups_of(objects)
    again = {*map(id_of, gone)} & told(sent)
    assert len(again) > lost / 2
    assert named(found) == again
    [whole] = [
        each for each in found if (each.survey, each.visit, each.detector) == tuple(detector)
    ]
    lost_there = [alert for alert in gone if exposure_of(alert) == detector]
    assert whole.came == 0
    assert whole.missing == len({*map(id_of, lost_there)} & again)


@pytest.mark.timeout(1800)  # 100,000 take 200 s of CPU to simulate and to decode
@pytest.mark.parametrize("count", [1_500, pytest.param(100_000, marks=pytest.mark.nightly)])
def test_nothing_is_named_if_all_came(objects: MemoryObjects, tmp_path: Path, count: int) -> None:
    simulator, detections = Simulator(5, keep_light_curves=False), set[Id]()
    for number in range(0, count, told_alerts.BATCH):
        alerts = list(simulator.alerts(told_alerts.BATCH))
        told_alerts.store(objects, alerts, tmp_path, number)
        detections |= told(alerts)
    assert len(detections) >= count
    assert groups_of(objects) == []


def test_a_detector_is_named_within_two_nights(
    objects: MemoryObjects, tmp_path: Path, some
) -> None:
    """Of those in which its objects are seen again."""
    sent, gone, detector = with_losses(some)
    lost = [alert for alert in gone if exposure_of(alert) == detector]
    ids, when = {alert.object_id for alert in lost}, int(lost[0].mjd)
    nights = sorted({int(alert.mjd) for alert in sent if alert.object_id in ids})
    later = [night for night in nights if night > when][1]
    told_alerts.store(objects, [a for a in sent if int(a.mjd) <= later], tmp_path)
    [whole] = [
        each
        for each in groups_of(objects)
        if (each.survey, each.visit, each.detector) == tuple(detector)
    ]
    assert (whole.night, whole.came, whole.cause) == (when, 0, Cause.UNEXPLAINED)
    assert whole.missing > len(lost) / 2


def test_small_windows_find_the_same(objects: MemoryObjects, tmp_path: Path, some) -> None:
    told_alerts.store(objects, with_losses(some)[0], tmp_path)
    at_once = groups_of(objects)
    assert at_once == groups_of(objects, most_alerts=100)
    assert at_once == groups_of(objects, most_missing=5)


def test_what_a_cut_holds_back_is_explained(objects: MemoryObjects, tmp_path: Path, some) -> None:
    """LSST's alerts below a reliability of 0.65 are not sent, and some others are lost."""
    alerts = [alert for alert in some if alert.survey == "lsst"]
    above = [alert for alert in alerts if (alert.points[0].reliability or 0) >= 0.65]
    held = {*map(id_of, alerts)} - {*map(id_of, above)}
    gone = {*map(id_of, random.Random(3).sample(above[50:], 10))}
    sent = [alert for alert in above if id_of(alert) not in gone]
    told_alerts.store(objects, sent, tmp_path)
    found = groups_of(objects)
    assert named(found) == gone & told(sent)
    below = sum(each.missing for each in found if each.cause is Cause.CUT)
    before = sum(each.missing for each in found if each.cause is Cause.BEFORE)
    assert below + before == len(held & told(sent))
    assert below > 10 * before


def test_what_was_seen_before_the_first_alert(objects: MemoryObjects, tmp_path: Path, some) -> None:
    alerts = [alert for alert in some if alert.survey == "lsst"]
    begin = sorted(alert.mjd for alert in alerts)[len(alerts) // 3]
    sent = [alert for alert in alerts if alert.mjd >= begin]
    told_alerts.store(objects, sent, tmp_path)
    found = groups_of(objects, since=60_000)
    assert {each.cause for each in found} == {Cause.BEFORE}
    early = {id_of(alert) for alert in alerts if alert.mjd < begin}
    assert sum(each.missing for each in found) == len(early & told(sent))
    # Nights before the first that is stored are not looked at unless they are asked for.
    assert {each.night for each in groups_of(objects)} <= {int(begin)}


def test_ids_that_were_stored_long_before_are_not_read(tmp_path: Path) -> None:
    """Of their runs only the surveys count: that a survey had begun before."""
    found = {}
    for has_earlier in (True, False):
        objects = DirectoryObjects(tmp_path / str(has_earlier))
        begin = max(alert.mjd for alert in lost_detector.lost())
        told_alerts.store(objects, [a for a in lost_detector.received() if a.mjd > begin], tmp_path)
        recent = {*objects.list("tables/")}
        earlier = [a for a in lost_detector.sent() if a.mjd < lost_detector.NIGHTS[0] - 2]
        told_alerts.store(objects, earlier if has_earlier else [], tmp_path, 1_000)
        stored_at = (lost_detector.NIGHTS[0] - EARLIER - 0.1 - UNIX_EPOCH) * 86_400
        for info in {*objects.list("tables/")} - recent:
            os.utime(tmp_path / str(has_earlier) / info.key, (stored_at, stored_at))
        groups = groups_of(objects, lost_detector.NIGHTS[0])
        (found[has_earlier],) = (
            each.cause
            for each in groups
            if (each.survey, each.visit, each.detector) == lost_detector.LOST
        )
    assert found == {True: Cause.UNEXPLAINED, False: Cause.BEFORE}


def test_a_packet_proves_an_alert_whose_cutouts_are_late(
    objects: MemoryObjects, tmp_path: Path, some
) -> None:
    alerts = some[:600]
    told_alerts.store(objects, alerts, tmp_path)
    for info in list(objects.list("tables/cutouts/")):
        objects.delete(info.key)
    rows = told_alerts.locations(alerts).select(["alert_id", "survey", "object_id", "mjd"])
    filled = {"pack": "packets/1/x.parquet", "offset": 0, "length": 1, "row": 0, "crc32": 1}
    rows = rows.from_pylist([row | filled for row in rows.to_pylist()], PACKETS.schema)
    assert groups_of(objects) == []  # a store without alerts
    Table(objects, PACKETS).append(rows, Coverage())
    assert groups_of(objects) == []


def test_an_alert_stored_under_another_night_is_not_named(
    objects: MemoryObjects, tmp_path: Path, some
) -> None:
    sent, gone, _ = with_losses(some)
    told_alerts.store(objects, sent, tmp_path)
    assert named(groups_of(objects))
    moved = told_alerts.locations(gone).to_pylist()
    rows = [row | {"mjd": row["mjd"] + 9} for row in moved]
    Table(objects, CUTOUTS).append(
        told_alerts.locations([]).from_pylist(rows, CUTOUTS.schema), Coverage()
    )
    assert named(groups_of(objects)) == set()
    assert named(groups_of(objects, most_alerts=100)) == set()


def test_a_damaged_table_of_ids_accuses_nobody(
    objects: MemoryObjects, tmp_path: Path, some
) -> None:
    told_alerts.store(objects, some[:600], tmp_path)
    info = next(objects.list("tables/cutouts/"))
    objects.put(info.key, bytes(objects.get(info.key))[:-9])
    with pytest.raises(Damaged, match="would count as missing"):
        groups_of(objects)


def test_runs_that_are_merged_meanwhile_are_read_once_more(objects: MemoryObjects) -> None:
    """The inputs of a merge are deleted while a scan is at the first of them."""
    for number in range(4):
        rows = made.many(2_000 * (number + 1)).slice(2_000 * number)
        Table(objects, DETECTIONS).append(rows, Coverage.of({("alerts", 0): [number]}))
    table = Table(objects, DETECTIONS)
    table.refresh()
    found = scan(table, ("source_id",), 0)
    ids = set(next(found)["source_id"].to_pylist())
    for later in (0, 10):  # days: the inputs are merged, then deleted
        compact(Table(objects, DETECTIONS), objects.now() + timedelta(days=later), Policy(fanout=2))
    for rows in found:
        ids.update(rows["source_id"].to_pylist())
    assert ids == set(range(8_000))


def test_what_was_stored_before_a_window_is_not_read(objects: MemoryObjects) -> None:
    Table(objects, DETECTIONS).append(made.many(10), Coverage())
    table = Table(objects, DETECTIONS)
    table.refresh()
    assert sum(rows.num_rows for rows in scan(table, ("mjd",), mjd(objects.now()) - 1)) == 10
    assert not list(scan(table, ("mjd",), mjd(objects.now()) + 1))
