"""The simulator: a reproducible stream of alerts, and the truth about it."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from stampede.simulator import lsst, ztf
from stampede.simulator.faults import FAULTS, spoil
from stampede.simulator.packets import SimulatedAlert
from stampede.simulator.sky import (
    LSST,
    MOST_NIGHTS,
    SHAPES,
    ZTF,
    Exposure,
    Point,
    Sighted,
    Survey,
    exposures,
    sight,
)

# What makes a follower of one object: (seed, number, what it is, the exposures, random numbers).
Follow = Callable[[int, int, Sighted, list[Exposure], np.random.Generator], Any]

RECENT = 64  # a duplicate repeats one of so many alerts


class Simulator:
    """Alerts of an invented sky, the same for the same arguments and the same libraries.

    Each survey's alerts come in order of time, field by field: when the nights of one field are
    over, the next field begins in the first night again. All lie between 2025-11-21 and
    2026-10-27.

    Parameters
    ----------
    seed
        Another seed, another sky. Object ids and Rubin's alert ids of two seeds differ where the
        seeds differ modulo 800; ZTF's candids tell the time, so two seeds may share a few.
    objects
        How many objects a field has.
    nights
        For how many nights a field is followed; histories grow with it.
    lsst_share
        Share of the messages that are Rubin's; the rest are ZTF's.
    solar_system
        Share of Rubin's alerts that show an object of the solar system.
    null_cutouts
        Share of the alerts that lack one cutout or more.
    duplicates
        Share of the messages that repeat an earlier one, byte for byte.
    corrupt
        Share of the messages that are spoilt, each by the next of `faults`.
    faults
        Which faults, by name.
    codec
        Of ZTF's containers: null, deflate or snappy.
    truth
        Keep what `light_curve` needs: some 300 bytes per point.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        objects: int = 100,
        nights: int = 60,
        lsst_share: float = 0.5,
        solar_system: float = 0.05,
        null_cutouts: float = 0.01,
        duplicates: float = 0.0,
        corrupt: float = 0.0,
        faults: tuple[str, ...] = tuple(FAULTS),
        codec: str = "null",
        truth: bool = True,
    ) -> None:
        if not 1 <= nights <= MOST_NIGHTS:
            raise ValueError(f"nights must be 1 to {MOST_NIGHTS}, not {nights}")
        if objects < 1:
            raise ValueError(f"objects must be 1 or more, not {objects}")
        if codec not in ztf.CODECS:
            raise ValueError(f"codec must be one of {', '.join(ztf.CODECS)}, not {codec!r}")
        shares = {
            "lsst_share": lsst_share,
            "solar_system": solar_system,
            "null_cutouts": null_cutouts,
            "duplicates": duplicates,
            "corrupt": corrupt,
        }
        for name, share in shares.items():
            if not 0 <= share <= 1:
                raise ValueError(f"{name} must be a share from 0 to 1, not {share}")
        self.lsst_share, self.solar_system = lsst_share, solar_system
        self.duplicates, self.corrupt, self.faults = duplicates, corrupt, faults
        self._rng = np.random.default_rng([seed, 0])
        rubin = partial(lsst.Follow, null_cutouts=null_cutouts)
        zwicky = partial(ztf.Follow, null_cutouts=null_cutouts, codec=codec)
        kinds = tuple(SHAPES)
        self._objects = stream(LSST, kinds, seed, objects, nights, rubin)
        self._movers = stream(LSST, ("mover",), seed, objects, nights, rubin)
        self._ztf = stream(ZTF, kinds, seed, objects, nights, zwicky)
        self._recent: deque[SimulatedAlert] = deque(maxlen=RECENT)
        self._spoilt = 0
        self._truth: dict[str, dict[tuple, Point]] | None = {} if truth else None

    def alerts(self, count: int) -> Iterator[SimulatedAlert]:
        """The next `count` messages; another call goes on where this one ended."""
        for _ in range(count):
            yield self._next()

    def light_curve(self, object_id: str) -> list[Point]:
        """Every point of that object which the alerts so far told of, in order of time."""
        if self._truth is None:
            raise ValueError("made with truth=False")
        points = self._truth.get(object_id, {}).values()
        return sorted(points, key=lambda point: (point.mjd, point.forced, point.limit))

    @property
    def object_ids(self) -> list[str]:
        """Every object that the alerts so far told of."""
        return list(self._truth or {})

    def _next(self) -> SimulatedAlert:
        if self._recent and self._rng.random() < self.duplicates:
            again = self._recent[self._rng.integers(len(self._recent))]
            return replace(again, duplicate=True)
        alert = self._fresh()
        if self.faults and self._rng.random() < self.corrupt:
            fault = self.faults[self._spoilt % len(self.faults)]
            self._spoilt += 1
            alert = spoil(alert, fault)
        self._recent.append(alert)
        if alert.fault is None or FAULTS[alert.fault].lightcurves < 300:
            self._tell(alert)
        return alert

    def _tell(self, alert: SimulatedAlert) -> None:
        if self._truth is None:
            return
        curve = self._truth.setdefault(alert.object_id, {})
        for point in alert.points:
            # ZTF's history lacks the score of the alert itself: the fuller point is kept.
            if point.reliability is not None or point.key not in curve:
                curve[point.key] = point

    def _fresh(self) -> SimulatedAlert:
        if self._rng.random() >= self.lsst_share:
            return next(self._ztf)
        moves = self._rng.random() < self.solar_system
        return next(self._movers if moves else self._objects)


def stream(
    survey: Survey, kinds: tuple[str, ...], seed: int, objects: int, nights: int, follow: Follow
) -> Iterator[SimulatedAlert]:
    """A survey's alerts without end: field after field, each in order of time."""
    for field in count():
        # The kind of object is part of the seed: movers are not where the others are.
        rng = np.random.default_rng([seed, survey.number, len(kinds), field])
        visits = exposures(survey, nights, rng)
        followed = [
            follow(seed, field * objects + i, sight(survey, kind, visits, nights, rng), visits, rng)
            for i, kind in enumerate(rng.choice(kinds, objects).tolist())
        ]
        for i in range(len(visits)):
            for each in followed:
                if (alert := each.alert(i)) is not None:
                    yield alert
