"""The simulator: deterministic, valid LSST and ZTF alerts of an invented sky."""

from stampede.simulator.packets import SimulatedAlert
from stampede.simulator.simulator import Simulator

__all__ = ["SimulatedAlert", "Simulator"]
