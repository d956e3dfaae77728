"""Simulated alerts in a store as far as histories are compared with them: points, and ids."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.schema import CUTOUTS, DETECTIONS
from stampede.store.tables.table import Table
from stampede_simulator.alert_bytes import SimulatedAlert
from tests.support.alerts.batch_decoders import make_batch_decoder

BATCH = 500

Id = tuple[str, int]


class Exposure(NamedTuple):
    """A detector of a visit."""

    survey: str
    visit: int | None
    detector: int | None


def store(objects: Objects, alerts: Sequence[SimulatedAlert], folder: Path, first: int = 0) -> None:
    """Store their points, and their ids in `cutouts`, a run for each batch, from that offset on."""
    decoder = make_batch_decoder(folder)
    for begin in range(0, len(alerts), BATCH):
        some = alerts[begin : begin + BATCH]
        coverage = Coverage.of({("alerts", 0): range(first + begin, first + begin + len(some))})
        points = decoder.detections([alert.body for alert in some]).rows
        Table(objects, DETECTIONS).append(points, coverage)
        Table(objects, CUTOUTS).append(locations(some), coverage)


def locations(alerts: Sequence[SimulatedAlert]) -> pa.Table:
    """Rows of `cutouts` that say no more than that the alerts came."""
    return pa.Table.from_pylist(
        [
            {"alert_id": alert.alert_id, "survey": alert.survey, "kind": "science"}
            | {"object_id": alert.object_id, "mjd": alert.mjd}
            for alert in alerts
        ],
        CUTOUTS.schema,
    )


def id_of(alert: SimulatedAlert) -> Id:
    return alert.survey, alert.alert_id


def told(alerts: Sequence[SimulatedAlert]) -> set[Id]:
    """The detections in these alerts and their histories."""
    return {
        (point.survey, point.source_id)
        for alert in alerts
        for point in alert.points
        if not (point.forced or point.limit)
    }


def exposure_of(alert: SimulatedAlert) -> Exposure:
    own = alert.points[0]
    return Exposure(alert.survey, own.visit, own.detector)


def common_exposure(alerts: Sequence[SimulatedAlert], most: int) -> Exposure:
    """The detector and visit with at most so many alerts, most of them told by later alerts."""
    counts = Counter(map(exposure_of, alerts))
    later = Counter[Exposure]()
    exposures = {id_of(alert): exposure_of(alert) for alert in alerts}
    again = {
        (exposures[found], found)
        for alert in alerts
        for found in told([alert]) & exposures.keys()
        if exposures[found] != exposure_of(alert)
    }
    later.update(exposure for exposure, _ in again)
    return next(each for each, _ in later.most_common() if counts[each] <= most)
