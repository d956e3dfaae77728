"""The alerts of many visits: a few thousand simulated ones, sent again under other ids.

Simulating each would take longer than a visit does. A copy costs one join of bytes.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby, islice
from typing import NamedTuple

from stampede.alerts.container import varint
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.simulator import Fields, Mix, Simulator

DETECTOR = 53  # alerts of one detector in a visit: 10,000 on 189 detectors
FIRST_ALERT, FIRST_OBJECT = 3 * 10**17, 4 * 10**17  # the simulator's own ids are below these


class AlertIds(NamedTuple):
    """The ids of an alert."""

    alert: int
    object: int


class VisitAlerts:
    """Numbered alerts, each of an object of its own; `message` is the same at every call.

    Alerts of one visit and detector follow each other and share their PSFs, as in a real visit.

    Parameters
    ----------
    simulated
        The alerts that are repeated.
    """

    def __init__(self, simulated: Sequence[SimulatedAlert]) -> None:
        self._pieces = [_without_ids(alert) for alert in simulated]
        self.mean_bytes = sum(len(alert.body) for alert in simulated) / len(simulated)

    def ids(self, number: int) -> AlertIds:
        """The ids of an alert."""
        return AlertIds(FIRST_ALERT + number, FIRST_OBJECT + number)

    def message(self, number: int) -> bytes:
        """The message of an alert."""
        alert_id, object_id = map(varint, self.ids(number))
        pieces = self._pieces[number % len(self._pieces)]
        return alert_id.join(object_id.join(between) for between in pieces)


def simulate(detectors: int, rows: int, each: int = DETECTOR) -> Iterator[SimulatedAlert]:
    """Rubin's alerts of one visit, `each` of every detector, with that mean of history rows."""
    for seed in range(1, detectors + 1):
        simulator = Simulator(
            seed,
            Fields.of_history(rows, 2 * each),
            Mix(lsst_share=1.0, solar_system=0.0, null_cutouts=0.0),
            keep_light_curves=False,
        )
        yield from _first_visit(simulator.alerts(40 * each), each)


def _first_visit(stream: Iterator[SimulatedAlert], each: int) -> Iterator[SimulatedAlert]:
    """The alerts of the first exposure that has so many."""
    for _, group in groupby(stream, key=lambda alert: alert.points[0].visit):
        alerts = list(islice(group, each))
        if len(alerts) == each:
            yield from alerts
            return
    raise ValueError(f"no simulated visit has {each} alerts")


def _without_ids(alert: SimulatedAlert) -> list[list[bytes]]:
    """The message cut at the alert's id, and each part of it at the object's id."""
    alert_id, object_id = varint(alert.alert_id), varint(int(alert.object_id))
    return [part.split(object_id) for part in alert.body.split(alert_id)]
