"""The history rows of simulated Rubin alerts, as full as real ones.

Of 3,340 real diaSources and 1,249 diaForcedSources nearly every float differs from row to row, so
that a row of a real packet takes 143 bytes after Zstandard's level 1. Values that only fill a row
come from random numbers here; the rest follow from the expected point.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np

from stampede.alerts.surveys.rubin_schemas import NEWEST_RUBIN, rubin_schemas
from stampede_simulator.alert_bytes import encoder, named_types
from stampede_simulator.sky import LSST, Point

PROCESSING = 0.002  # days from exposure to alert
PROCESSED_AGAIN = 0.5  # days later
# Each of these flags is set in one of so many exposures, first in the second number.
FLAGGED = {
    "isDipole": (11, 3),
    "centroid_flag": (29, 7),
    "psfFlux_flag": (29, 7),
    "pixelFlags_saturated": (17, 5),
    "pixelFlags_saturatedCenter": (34, 5),
    "pixelFlags_streak": (23, 11),
}
PIXELS = 1681  # in a fit of the point spread function: 41 by 41
# One exposure in so many has a fit of a dipole, and lacks that of a trail and the moments.
DIPOLE, SHAPELESS = 8, 16
# Of each of these a value is its scale, times one plus its spread times a normal random number.
ERRORS = {
    "raErr": (7e-6, 0.1),
    "decErr": (7e-6, 0.1),
    "ra_dec_Cov": (-1e-12, 0.5),
    "xErr": (0.126, 0.1),
    "yErr": (0.124, 0.1),
    "psfChi2": (float(PIXELS), 0.035),
    "ixxPSF": (0.21, 0.1),
    "iyyPSF": (0.23, 0.1),
    "ixyPSF": (0.017, 0.5),
}
MOMENTS = {
    "trailFluxErr": (0.95, 0.1),
    "trailLength": (0.8, 0.2),
    "trailAngle": (40.0, 1.0),
    "ixx": (0.22, 0.1),
    "iyy": (0.19, 0.1),
    "ixy": (0.03, 0.5),
    "extendedness": (0.05, 0.3),
}
DIPOLES = {
    "dipoleMeanFluxErr": (90.0, 0.2),
    "dipoleFluxDiffErr": (90.0, 0.2),
    "dipoleLength": (0.6, 0.3),
    "dipoleAngle": (90.0, 0.5),
    "dipoleChi2": (float(PIXELS), 0.05),
}
NORMALS = 40  # random numbers of a row; more than it needs


@cache
def encoders(version: int = NEWEST_RUBIN) -> dict[str, Callable[[dict[str, Any]], bytes]]:
    """One encoder for each record. Values that are not simulated are NaN, 0 or False."""
    types = named_types(rubin_schemas()[version])
    blank = {"float": math.nan, "double": math.nan, "int": 0, "boolean": False}
    return {name: encoder(types[name], **blank) for name in types if name != "alert"}


@cache
def names(version: int, record: str) -> frozenset[str]:
    """The fields of a record."""
    fields = named_types(rubin_schemas()[version])[record]["fields"]
    return frozenset(field["name"] for field in fields)


def flagged(i: int) -> list[str]:
    """The flags of the detection in exposure `i`."""
    return [name for name, (period, first) in FLAGGED.items() if i % period == first]


class RubinRows:
    """The rows of one object.

    Parameters
    ----------
    seed
        Of the random numbers: integers that tell the object from every other.
    host
        Flux of the object in the template.
    none
        How the object's packets leave out a number and a float: null, or 0 and NaN.
    ids
        The fields with the ids of the object.
    """

    def __init__(
        self,
        seed: Sequence[int],
        host: float,
        none: tuple[int | None, float | None],
        ids: dict[str, int | None],
    ) -> None:
        self._seed, self._host, self._none, self._ids = seed, host, none, ids

    def source(
        self, point: Point, i: int, place: tuple[float, float], version: int = NEWEST_RUBIN
    ) -> bytes:
        """The diaSource of exposure `i`, at that place on the detector, pixels."""
        assert point.flux is not None
        assert point.flux_err is not None
        row = self._common(point) | self._ids | self._fits(point, i)
        row |= {
            "diaSourceId": point.source_id,
            "parentDiaSourceId": self._none[0],
            "exposureTime": LSST.exposure,
            "x": place[0],
            "y": place[1],
            "isNegative": point.flux < 0,
            "snr": abs(point.flux / point.flux_err),
            "reliability": point.reliability,
            "reliabilityVersion": "simulated",
            **dict.fromkeys(flagged(i), True),
        }
        known = names(version, "diaSource")
        return encoders(version)["diaSource"]({name: row[name] for name in row if name in known})

    def forced_source(self, point: Point, i: int, number: int, again: bool = False) -> bytes:
        """The diaForcedSource of exposure `i`, with that diaForcedSourceId.

        `again` if the visit was processed again since.
        """
        row = self._common(point)
        row["diaForcedSourceId"], row["diaObjectId"] = number, self._ids["diaObjectId"]
        row["timeProcessedMjdTai"] = self._processed(point, i, forced=True)
        if again:
            row["timeProcessedMjdTai"] += PROCESSED_AGAIN
        return encoders()["diaForcedSource"](row)

    def _common(self, point: Point) -> dict[str, Any]:
        """The fields that detections and forced points share."""
        return {
            "visit": point.visit,
            "detector": point.detector,
            "ra": point.ra,
            "dec": point.dec,
            "psfFlux": point.flux,
            "psfFluxErr": point.flux_err,
            "midpointMjdTai": point.mjd,
            "scienceFlux": point.total_flux,
            "scienceFluxErr": point.total_flux_err,
            "band": point.band,
            "timeWithdrawnMjdTai": self._none[1],
        }

    def _fits(self, point: Point, i: int) -> dict[str, Any]:
        """The values that only fill a row."""
        assert point.flux is not None
        assert point.flux_err is not None
        assert point.ra is not None
        assert point.dec is not None
        rng = np.random.default_rng([*self._seed, i])
        drawn: Iterator[float] = iter(rng.standard_normal(NORMALS).tolist())

        def near(scale: float, spread: float) -> float:
            return scale * (1 + spread * next(drawn))

        scales = ERRORS | (MOMENTS if i % SHAPELESS else {}) | ({} if i % DIPOLE else DIPOLES)
        row: dict[str, Any] = {name: near(*scale) for name, scale in scales.items()}
        row |= {
            "apFlux": near(point.flux, 0.05),
            "apFluxErr": near(1.8 * point.flux_err, 0.05),
            "templateFlux": near(self._host, 0.01),
            "templateFluxErr": near(point.flux_err / 10, 0.1),
            "psfNdata": PIXELS,
            "bboxSize": 21 + int(4 * abs(next(drawn))),
            "timeProcessedMjdTai": self._processed(point, i),
        }
        if i % SHAPELESS:
            row["trailFlux"] = near(point.flux, 0.01)
            row["trailRa"] = point.ra + 1e-6 * next(drawn)
            row["trailDec"] = point.dec + 1e-6 * next(drawn)
        if not i % DIPOLE:
            row |= {"dipoleMeanFlux": near(point.flux, 0.1), "dipoleFluxDiff": 0.0}
            row |= {"dipoleNdata": 2 * PIXELS, "dipoleFitAttempted": True}
        return row

    def _processed(self, point: Point, i: int, forced: bool = False) -> float:
        """When the row was made, MJD TAI."""
        rng = np.random.default_rng([*self._seed, i, int(forced)])
        share: float = rng.random()
        return point.mjd + PROCESSING * (0.5 + share)
