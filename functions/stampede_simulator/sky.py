"""A small sky that is known exactly: objects, exposures, and what each exposure measures.

The sky consists of fields. The objects of a field share their exposures for some nights. A field
follows from the seed alone, so the same seed gives the same sky.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

FIRST_NIGHT = 61000  # MJD TAI; 2025-11-21
MOST_NIGHTS = 340  # ends before November 2026, so that no alert is from the future
THRESHOLD = 5.0  # a detection is this many sigma, either sign

NJY = 31.4  # AB magnitude of 1 nJy (Oke & Gunn 1983)
COLOUR = {"u": 0.5, "g": 0.9, "r": 1.0, "i": 1.05, "z": 0.95, "y": 0.8}


@dataclass(frozen=True)
class Survey:
    """How a survey observes; fluxes in nJy, angles in arcseconds, times in days."""

    name: str
    number: int  # part of the seed, so that surveys have different random numbers
    bands: str
    depth: float  # 1 sigma of one measurement
    brightest: float  # magnitude of the brightest and faintest peaks
    faintest: float
    clear: float  # share of the nights in which a field is observed, twice each
    dusk: float  # the night begins at this fraction of the MJD, and lasts a quarter of a day
    exposure: float  # seconds
    jitter: float  # 1 sigma of one position
    pixel: float


LSST = Survey("lsst", 1, "ugrizy", 120.0, 19.5, 24.0, 0.4, 0.05, 30.0, 0.03, 0.2)
ZTF = Survey("ztf", 2, "gr", 4600.0, 15.5, 20.0, 0.5, 0.2, 30.0, 0.1, 1.012)


class Point(NamedTuple):
    """An expected point of a light curve, with the columns of `alerts.columns.DETECTION`."""

    object_id: str
    survey: str
    forced: bool
    limit: bool
    source_id: int
    mjd: float
    band: str
    ra: float | None
    dec: float | None
    flux: float | None
    flux_err: float | None
    total_flux: float | None = None
    total_flux_err: float | None = None
    reliability: float | None = None
    visit: int | None = None
    detector: int | None = None
    flags: int | None = None
    procstatus: str | None = None
    limiting_mag: float | None = None
    rb: float | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """Identifies the point in every alert that has it, like `columns.DETECTION_KEY`."""
        return self[:5]


class Exposure(NamedTuple):
    """One visit to a field: mid-exposure for LSST, start of exposure for ZTF (MJD TAI)."""

    mjd: float
    band: str
    detector: int


@dataclass
class Measurements:
    """An object and its measurements in every exposure of its field (arrays over exposures)."""

    kind: str
    ra: float
    dec: float
    host: float  # flux of the host galaxy or of the star in quiescence
    flux: np.ndarray
    flux_err: np.ndarray
    detected: np.ndarray
    ras: np.ndarray
    decs: np.ndarray


def exposures(
    survey: Survey, nights: int, rng: np.random.Generator, visits: int = 2
) -> list[Exposure]:
    """`visits` exposures in every clear night, in two bands, in order of time."""
    found = []
    for night in np.flatnonzero(rng.random(nights) < survey.clear):
        bands = rng.permutation(list(survey.bands))[:2]
        detector = int(rng.integers(0, 64))
        start = FIRST_NIGHT + int(night) + survey.dusk + rng.uniform(0, 0.2)
        later = rng.uniform(0.01, 0.04)
        for number in range(visits):
            mjd = float(start + later * number / max(visits - 1, 1))
            found.append(Exposure(mjd, str(bands[number % 2]), detector))
    return found


def supernova(mjd: np.ndarray, nights: int, rng: np.random.Generator) -> np.ndarray:
    """Exponential rise and fall around an explosion (Bazin et al. 2009), peak about 1."""
    since = mjd - FIRST_NIGHT - rng.uniform(-20, 0.7 * nights)
    rise, fall = rng.uniform(2, 6), rng.uniform(20, 60)
    risen = 1 + np.exp(-since / rise)
    flux: np.ndarray = 1.4 * np.exp(-np.clip(since, -200, None) / fall) / risen
    return flux


def variable(mjd: np.ndarray, nights: int, rng: np.random.Generator) -> np.ndarray:
    """A star that pulsates about its mean: difference fluxes of both signs."""
    period = 10 ** rng.uniform(-0.5, 2)
    return np.sin(2 * np.pi * mjd / period + rng.uniform(0, 2 * np.pi))


def agn(mjd: np.ndarray, nights: int, rng: np.random.Generator) -> np.ndarray:
    """A damped random walk of 60 days (Kelly et al. 2009)."""
    walk = np.zeros(len(mjd))
    for i, kick in enumerate(rng.standard_normal(len(mjd))):
        memory = np.exp(-(mjd[i] - mjd[i - 1]) / 60) if i else 0.0
        walk[i] = memory * walk[i - 1] + np.sqrt(1 - memory**2) * 0.5 * kick
    return walk


SHAPES = {"supernova": supernova, "variable": variable, "agn": agn}


def mover(mjd: np.ndarray, nights: int, rng: np.random.Generator) -> np.ndarray:
    """A small body of the solar system, of constant light."""
    return np.ones(len(mjd))


def measure(
    survey: Survey, kind: str, visits: list[Exposure], nights: int, rng: np.random.Generator
) -> Measurements:
    """Put an object of that kind on the sky and measure it in every exposure, with noise."""
    mjd = np.array([visit.mjd for visit in visits])
    peak = 10 ** ((NJY - rng.uniform(survey.brightest, survey.faintest)) / 2.5)
    shape = SHAPES.get(kind, mover)(mjd, nights, rng)
    true = peak * shape * np.array([COLOUR[visit.band] for visit in visits])
    error = np.hypot(survey.depth * rng.uniform(0.8, 1.3, len(mjd)), 0.005 * true)
    # Packets carry 32 bits. Round here as well, so that the expected values are exact.
    flux = (true + error * rng.standard_normal(len(mjd))).astype(np.float32)
    error = error.astype(np.float32)
    ra, dec = rng.uniform(0, 360), rng.uniform(-60, 10) if survey is LSST else rng.uniform(-25, 80)
    motion = rng.uniform(-0.2, 0.2, 2) if kind == "mover" else np.zeros(2)  # degrees a day
    elapsed = mjd - mjd[:1]
    jitter = survey.jitter / 3600 * rng.standard_normal((2, len(mjd)))
    decs = dec + motion[1] * elapsed / 10 + jitter[1]
    ras = (ra + (motion[0] * elapsed + jitter[0]) / np.cos(np.radians(dec))) % 360
    return Measurements(
        kind=kind,
        ra=float(ra),
        dec=float(dec),
        host=float(peak * rng.uniform(1, 3)),
        flux=flux,
        flux_err=error,
        detected=np.abs(flux) > THRESHOLD * error,
        ras=ras,
        decs=decs,
    )
