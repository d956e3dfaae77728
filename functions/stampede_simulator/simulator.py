"""The simulator: a reproducible stream of alerts, and the light curves that they should give."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from stampede_simulator import lsst, ztf
from stampede_simulator.alert_bytes import SimulatedAlert
from stampede_simulator.faults import FAULTS, with_fault
from stampede_simulator.sky import (
    FIRST_NIGHT,
    LSST,
    MOST_NIGHTS,
    SHAPES,
    ZTF,
    Exposure,
    Measurements,
    Point,
    Survey,
    exposures,
    measure,
)

# Makes the simulated object of a survey: (seed, number, measurements, exposures, random numbers).
MakeObject = Callable[[int, int, Measurements, list[Exposure], np.random.Generator], Any]

RECENT = 64  # a duplicate repeats one of the last RECENT alerts


@dataclass(frozen=True)
class Fields:
    """The fields of a survey, of which one after the other is observed.

    Attributes
    ----------
    objects
        Number of objects in a field, all on one detector. 100 give 75 alerts a visit and detector;
        Rubin's mean is 53 (10,000 alerts a visit, 189 detectors).
    nights
        Number of nights for which a field is observed; histories grow with it.
    first_night
        Night of a field's first alert, counted from 0. Earlier observations are only in histories.
    """

    objects: int = 100
    nights: int = 60
    first_night: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.nights <= MOST_NIGHTS:
            raise ValueError(f"nights must be 1 to {MOST_NIGHTS}, not {self.nights}")
        if not 0 <= self.first_night < self.nights:
            raise ValueError(f"first_night must be 0 to {self.nights - 1}, not {self.first_night}")
        if self.objects < 1:
            raise ValueError(f"objects must be 1 or more, not {self.objects}")


@dataclass(frozen=True)
class Mix:
    """Of what the messages are: shares from 0 to 1.

    Attributes
    ----------
    lsst_share
        Share of Rubin's messages; the rest are ZTF's.
    solar_system
        Share of Rubin's alerts that show an object of the solar system.
    null_cutouts
        Share of alerts that lack one cutout or more.
    duplicates
        Share of the messages that repeat an earlier one, byte for byte.
    corrupt
        Share of messages with a fault; `faults` are used in turn.
    faults
        Names of faults.
    """

    lsst_share: float = 0.5
    solar_system: float = 0.05
    null_cutouts: float = 0.01
    duplicates: float = 0.0
    corrupt: float = 0.0
    faults: tuple[str, ...] = tuple(FAULTS)

    def __post_init__(self) -> None:
        for name in ("lsst_share", "solar_system", "null_cutouts", "duplicates", "corrupt"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise ValueError(f"{name} must be a share from 0 to 1, not {share}")


FIELDS, MIX = Fields(), Mix()


class Simulator:
    """Alerts of an invented sky: the same arguments and libraries give the same alerts.

    Each survey's alerts come field by field, and in order of time within a field: the next field
    starts in the first night again. All times are between 2025-11-21 and 2026-10-27.

    Parameters
    ----------
    seed
        Another seed gives another sky. If two seeds differ modulo 800, so do their object ids and
        Rubin's alert ids. ZTF's candids contain the time, so two seeds may share some of them.
    codec
        Codec of ZTF's containers: null, deflate or snappy.
    keep_light_curves
        Keep the points for `light_curve`, about 300 bytes each.
    """

    def __init__(
        self,
        seed: int = 1,
        fields: Fields = FIELDS,
        mix: Mix = MIX,
        *,
        codec: str = "null",
        keep_light_curves: bool = True,
    ) -> None:
        if codec not in ztf.CODECS:
            raise ValueError(f"codec must be one of {', '.join(ztf.CODECS)}, not {codec!r}")
        self._mix = mix
        self._rng = np.random.default_rng([seed, 0])
        rubin = partial(lsst.RubinObject, null_cutouts=mix.null_cutouts)
        zwicky = partial(ztf.ZtfObject, null_cutouts=mix.null_cutouts, codec=codec)
        kinds = tuple(SHAPES)
        self._objects = stream(LSST, kinds, seed, fields, rubin)
        self._movers = stream(LSST, ("mover",), seed, fields, rubin)
        self._ztf = stream(ZTF, kinds, seed, fields, zwicky)
        self._recent: deque[SimulatedAlert] = deque(maxlen=RECENT)
        self._faulty = 0
        self._curves: dict[str, dict[tuple[Any, ...], Point]] | None = (
            {} if keep_light_curves else None
        )

    def alerts(self, count: int) -> Iterator[SimulatedAlert]:
        """The next `count` messages; another call continues after them."""
        for _ in range(count):
            yield self._next()

    def light_curve(self, object_id: str) -> list[Point]:
        """Every point of that object in the alerts so far, in order of time."""
        if self._curves is None:
            raise ValueError("made with keep_light_curves=False")
        points = self._curves.get(object_id, {}).values()
        return sorted(points, key=lambda point: (point.mjd, point.forced, point.limit))

    @property
    def object_ids(self) -> list[str]:
        """Every object in the alerts so far."""
        return list(self._curves or {})

    def _next(self) -> SimulatedAlert:
        if self._recent and self._rng.random() < self._mix.duplicates:
            earlier = self._recent[self._rng.integers(len(self._recent))]
            return replace(earlier, duplicate=True)
        alert = self._new_alert()
        faults = self._mix.faults
        if faults and self._rng.random() < self._mix.corrupt:
            fault = faults[self._faulty % len(faults)]
            self._faulty += 1
            alert = with_fault(alert, fault)
        self._recent.append(alert)
        if alert.fault is None or FAULTS[alert.fault].lightcurves < 300:
            self._keep_points(alert)
        return alert

    def _keep_points(self, alert: SimulatedAlert) -> None:
        if self._curves is None:
            return
        curve = self._curves.setdefault(alert.object_id, {})
        for point in alert.points:
            # ZTF's history lacks the score that the alert itself has: keep the point with a score.
            if point.reliability is not None or point.key not in curve:
                curve[point.key] = point

    def _new_alert(self) -> SimulatedAlert:
        if self._rng.random() >= self._mix.lsst_share:
            return next(self._ztf)
        moves = self._rng.random() < self._mix.solar_system
        return next(self._movers if moves else self._objects)


def stream(
    survey: Survey,
    kinds: tuple[str, ...],
    seed: int,
    fields: Fields,
    make: MakeObject,
) -> Iterator[SimulatedAlert]:
    """An endless stream of a survey's alerts: field after field, each in order of time.

    A field is observed from night 0 on, and has alerts from its first night on.
    """
    nights, objects = fields.nights, fields.objects
    for field in count():
        # The number of kinds is in the seed, so that fields of movers differ from other fields.
        rng = np.random.default_rng([seed, survey.number, len(kinds), field])
        visits = exposures(survey, nights, rng)
        observed = [
            make(seed, field * objects + i, measure(survey, kind, visits, nights, rng), visits, rng)
            for i, kind in enumerate(rng.choice(kinds, objects).tolist())
        ]
        for i, visit in enumerate(visits):
            sent = visit.mjd >= FIRST_NIGHT + fields.first_night
            for one in observed:
                if (alert := one.alert(i, sent)) is not None:
                    yield alert
