"""The simulator: a reproducible stream of alerts, and the light curves that they should give."""

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any, Self

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

# Of an object with a history: detections, and forced photometry of its last weeks.
ROWS_PER_EXPOSURE = 1.3
LONGEST, LAST_NIGHTS = 320, 20  # nights of a long history, and with alerts after it
MOST_ROWS = 2000
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
    visits
        Exposures of a field in a clear night.
    spread
        Whether objects are seen for the first time all through the nights before, so that the
        first alerts have histories of any length. Otherwise the survey begins with the field.
    upgrade_night
        Night, counted from 0, from which Rubin sends its newest schema; earlier alerts have 10.0.
    """

    objects: int = 100
    nights: int = 60
    first_night: int = 0
    visits: int = 2
    spread: bool = False
    upgrade_night: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.nights <= MOST_NIGHTS:
            raise ValueError(f"nights must be 1 to {MOST_NIGHTS}, not {self.nights}")
        if not 0 <= self.first_night < self.nights:
            raise ValueError(f"first_night must be 0 to {self.nights - 1}, not {self.first_night}")
        for name in ("objects", "visits"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")

    @classmethod
    def of_history(cls, rows: int, objects: int = 100) -> Self:
        """Fields whose first LSST alerts have 0 to about 2 `rows` history rows, `rows` in the mean.

        The eight real alerts at hand have 0 to 1,153 rows, 573 in the mean. Later alerts of a field
        have more.
        """
        if not 1 <= rows <= MOST_ROWS:
            raise ValueError(f"rows must be 1 to {MOST_ROWS}, not {rows}")
        exposures = 2 * rows / ROWS_PER_EXPOSURE
        visits = max(2, math.ceil(exposures / (LSST.clear * LONGEST)))
        first = math.ceil(exposures / (LSST.clear * visits))
        return cls(objects, first + LAST_NIGHTS, first, visits, spread=True)


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
    late
        Share of the messages that come after up to `RECENT` later ones.
    missing
        Share of the alerts that are never sent. Later histories have their points.
    restarts
        Share of the messages after which the sender restarts, and sends its last `RECENT` again.
    corrupt
        Share of messages with a fault; `faults` are used in turn.
    faults
        Names of faults.
    """

    lsst_share: float = 0.5
    solar_system: float = 0.05
    null_cutouts: float = 0.01
    duplicates: float = 0.0
    late: float = 0.0
    missing: float = 0.0
    restarts: float = 0.0
    corrupt: float = 0.0
    faults: tuple[str, ...] = tuple(FAULTS)

    def __post_init__(self) -> None:
        for name in SHARES:
            share = getattr(self, name)
            if not 0 <= share <= 1:
                raise ValueError(f"{name} must be a share from 0 to 1, not {share}")
        for name in ("late", "missing"):
            if getattr(self, name) == 1:
                raise ValueError(f"{name} must be below 1: otherwise no alert is ever sent")


SHARES = tuple(name for name in Mix.__dataclass_fields__ if name != "faults")
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
        upgrade = FIRST_NIGHT + fields.upgrade_night
        rubin = partial(lsst.RubinObject, null_cutouts=mix.null_cutouts, upgrade=upgrade)
        zwicky = partial(ztf.ZtfObject, null_cutouts=mix.null_cutouts, codec=codec)
        kinds = tuple(SHAPES)
        self._objects = stream(LSST, kinds, seed, fields, rubin)
        self._movers = stream(LSST, ("mover",), seed, fields, rubin)
        self._ztf = stream(ZTF, kinds, seed, fields, zwicky)
        self._recent: deque[SimulatedAlert] = deque(maxlen=RECENT)
        self._again: deque[SimulatedAlert] = deque()  # what a sender that restarts sends next
        self._late: list[tuple[int, SimulatedAlert]] = []  # with the number of its message
        self._sent = self._faulty = 0
        self._curves: dict[str, dict[tuple[Any, ...], Point]] | None = (
            {} if keep_light_curves else None
        )

    def alerts(self, count: int) -> Iterator[SimulatedAlert]:
        """The next `count` messages; another call continues after them."""
        for _ in range(count):
            self._sent += 1
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
        if not self._again and self._happens(self._mix.restarts):
            self._again.extend(self._recent)
        if self._again:
            return replace(self._again.popleft(), duplicate=True)
        if self._recent and self._rng.random() < self._mix.duplicates:
            earlier = self._recent[self._rng.integers(len(self._recent))]
            return replace(earlier, duplicate=True)
        alert = self._on_time() if self._mix.late else self._new_alert()
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

    def _on_time(self) -> SimulatedAlert:
        """A late alert whose time has come, otherwise the next that is not late."""
        for number, (due, alert) in enumerate(self._late):
            if due <= self._sent:
                del self._late[number]
                return alert
        while self._happens(self._mix.late):
            due = self._sent + int(self._rng.integers(1, RECENT + 1))
            self._late.append((due, self._new_alert()))
        return self._new_alert()

    def _new_alert(self) -> SimulatedAlert:
        while self._happens(self._mix.missing):
            self._made()
        return self._made()

    def _happens(self, share: float) -> bool:
        """Whether an event of that share happens now. Without it the sky stays the same."""
        return bool(share and self._rng.random() < share)

    def _made(self) -> SimulatedAlert:
        if self._rng.random() >= self._mix.lsst_share:
            return next(self._ztf)
        moves = self._rng.random() < self._mix.solar_system
        return next(self._movers if moves else self._objects)


def hide(measured: Measurements, visits: list[Exposure], first_night: int, seed: list[int]) -> None:
    """Let an object be seen for the first time in any exposure before `first_night`."""
    before = sum(visit.mjd < FIRST_NIGHT + first_night for visit in visits)
    begin = int(np.random.default_rng(seed).integers(0, before + 1))
    measured.detected[:begin] = False


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
        visits = exposures(survey, nights, rng, fields.visits)
        observed = []
        for i, kind in enumerate(rng.choice(kinds, objects).tolist()):
            measured = measure(survey, kind, visits, nights, rng)
            if fields.spread:
                hide(measured, visits, fields.first_night, [seed, survey.number, field, i])
            observed.append(make(seed, field * objects + i, measured, visits, rng))
        for i, visit in enumerate(visits):
            sent = visit.mjd >= FIRST_NIGHT + fields.first_night
            for one in observed:
                if (alert := one.alert(i, sent)) is not None:
                    yield alert
