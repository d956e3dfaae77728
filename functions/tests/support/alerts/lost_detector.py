"""Simulated alerts of some nights, of which a whole detector of a visit can be lost."""

from functools import cache

from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.simulator import Fields, Mix, Simulator
from tests.support.alerts.told_alerts import Exposure, exposure_of

LOST = Exposure("lsst", 2025112600005, 25)
"""16 objects: those of the field, all seen again in the two nights after it."""
NIGHTS = [61005, 61006, 61008]
"""The last nights: that of the lost detector, and the two after it."""


@cache
def sent() -> tuple[SimulatedAlert, ...]:
    """All alerts until the end of these nights."""
    simulator = Simulator(5, Fields(16), Mix(corrupt=0, duplicates=0), keep_light_curves=False)
    return tuple(alert for alert in simulator.alerts(600) if alert.mjd < NIGHTS[-1] + 1)


def received() -> list[SimulatedAlert]:
    """Those that are not of the lost detector."""
    return [alert for alert in sent() if exposure_of(alert) != LOST]


def lost() -> list[SimulatedAlert]:
    """Those of the lost detector."""
    return [alert for alert in sent() if exposure_of(alert) == LOST]
