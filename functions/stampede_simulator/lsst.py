"""Simulated Rubin alerts: schema 11.1 in Confluent framing."""

import math
from collections.abc import Callable
from datetime import date, timedelta
from functools import cache
from typing import Any

import numpy as np

from stampede.alerts.columns import FLAGS
from stampede.alerts.container import varint
from stampede.alerts.surveys.rubin_schemas import NEWEST_RUBIN, rubin_schemas
from stampede_simulator import cutout_images, lsst_cutouts
from stampede_simulator.alert_bytes import (
    NULL,
    SOME,
    SimulatedAlert,
    array,
    blob,
    double,
    encoder,
    named_types,
)
from stampede_simulator.sky import FIRST_NIGHT, LSST, Exposure, Measurements, Point

FRAME = b"\x00" + NEWEST_RUBIN.to_bytes(4, "big")
KINDS = ("difference", "science", "template")  # in the order of the packet
PROCESSING = 0.002  # days from exposure to alert
AGAIN = 7  # of so many exposures one is processed again, which gives its forced points other ids
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
SIZES = (30,) * 47 + (41, 60, 102)  # pixels; the eight real alerts at hand have 30


@cache
def encoders() -> dict[str, Callable[[dict[str, Any]], bytes]]:
    """One encoder for each record. Values that are not simulated are NaN, 0 or False."""
    types = named_types(rubin_schemas()[NEWEST_RUBIN])
    blank = {"float": math.nan, "double": math.nan, "int": 0, "boolean": False}
    return {name: encoder(types[name], **blank) for name in types if name != "alert"}


class RubinObject:
    """One object and its alerts through the exposures of its field.

    Ids start at ``1e17 + (seed % 800) * 1e15``: each takes nine bytes, like real ones.
    """

    def __init__(
        self,
        seed: int,
        number: int,
        measurements: Measurements,
        visits: list[Exposure],
        rng: np.random.Generator,
        null_cutouts: float = 0.0,
    ) -> None:
        self.measurements, self.visits, self.rng = measurements, visits, rng
        self.null_cutouts = null_cutouts
        self.moves = measurements.kind == "mover"
        self.base = 10**17 + (seed % 800) * 10**15
        self.number = number + self.moves * 10**10
        self.id = self.base + self.number
        # Real packets have two ways to leave a value out: null, or 0 and NaN (as in schema 10.0).
        self.none: tuple[int | None, float | None] = (0, math.nan) if number % 2 else (None, None)
        self.sources: list[bytes] = []
        self.forced: list[bytes] = []
        self.points: list[Point] = []
        self.first = math.nan
        size = int(rng.choice(SIZES))
        offset = tuple(rng.choice([-0.375, -0.125, 0.125, 0.375], 2).tolist())
        host = 0.0 if self.moves else measurements.host
        self.scene = cutout_images.Scene(
            seed, size, host, LSST.depth, lsst_cutouts.FWHM, offset, rng
        )
        scale, angle = LSST.pixel / 3600, rng.uniform(0, 2 * math.pi)
        c, s = scale * math.cos(angle), scale * math.sin(angle)
        self.pc, self.angle = (-c, s, s, c), math.degrees(angle)
        # Of the pixel at the lower left of the cutouts: objects are all over the detector.
        self.corner = 100 + number * 2_654_435_761 % 3800, 100 + number * 40_503 % 3700

    def source_id(self, i: int, kind: int = 2) -> int:
        """The id of a row of exposure `i`; `kind` is a digit."""
        return self.base + kind * 10**14 + self.number * 1000 + i

    def point(self, i: int, forced: bool) -> Point:
        """The expected point of exposure `i`."""
        measured, visit = self.measurements, self.visits[i]
        host = 0.0 if self.moves else measured.host
        return Point(
            object_id=str(self.id),
            survey="lsst",
            forced=forced,
            limit=False,
            source_id=forced_id(visit, i) if forced else self.source_id(i),
            mjd=visit.mjd,
            band=visit.band,
            ra=measured.ra if forced else float(measured.ras[i]),
            dec=measured.dec if forced else float(measured.decs[i]),
            flux=float(measured.flux[i]),
            flux_err=float(measured.flux_err[i]),
            total_flux=float(np.float32(host + measured.flux[i])),
            total_flux_err=float(measured.flux_err[i]),
            reliability=None if forced else float(np.float32(0.5 + 0.001 * (i % 500))),
            visit=visit_id(visit, i),
            detector=visit.detector,
            flags=None if forced else sum(1 << FLAGS.index(name) for name in flagged(i)),
        )

    def common(self, point: Point) -> dict[str, Any]:
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
            "timeProcessedMjdTai": point.mjd + PROCESSING,
            "timeWithdrawnMjdTai": self.none[1],
        }

    def source(self, point: Point) -> bytes:
        """A diaSource."""
        assert point.flux is not None
        assert point.flux_err is not None
        none = self.none[0]
        return encoders()["diaSource"](
            self.common(point)
            | {
                "diaSourceId": point.source_id,
                "diaObjectId": none if self.moves else self.id,
                "ssObjectId": self.id if self.moves else none,
                "parentDiaSourceId": none,
                "exposureTime": LSST.exposure,
                "raErr": LSST.jitter / 3600,
                "decErr": LSST.jitter / 3600,
                "x": self.corner[0] + self.scene.x,
                "y": self.corner[1] + self.scene.y,
                "isNegative": point.flux < 0,
                "snr": abs(point.flux / point.flux_err),
                "apFlux": point.flux,
                "apFluxErr": point.flux_err,
                "templateFlux": 0.0 if self.moves else self.measurements.host,
                "extendedness": 0.1,
                "reliability": point.reliability,
                "reliabilityVersion": "simulated",
                "bboxSize": 21,
            }
            | dict.fromkeys(flagged(point.source_id % 1000), True)
        )

    def forced_source(self, i: int, again: bool = False) -> bytes:
        """The diaForcedSource of exposure `i`, or of its visit that was processed `again`."""
        point = self.point(i, forced=True)
        row = self.common(point)
        row |= {"diaForcedSourceId": self.source_id(i, 6 if again else 5), "diaObjectId": self.id}
        if again:
            row["timeProcessedMjdTai"] += PROCESSED_AGAIN
        return encoders()["diaForcedSource"](row)

    @property
    def object_prefix(self) -> bytes:
        """The diaObject without its last three fields, which change with every alert."""
        record = {"diaObjectId": self.id, "validityStartMjdTai": self.first}
        encoded: bytes = encoders()["diaObject"](
            record
            | {"ra": self.measurements.ra, "dec": self.measurements.dec, "nDiaSources": 0}
            | {"firstDiaSourceMjdTai": None, "lastDiaSourceMjdTai": None}
        )
        return encoded[:-3]

    def alert(self, i: int, sent: bool) -> SimulatedAlert | None:
        """The alert of exposure `i`, or None without a detection, or if it is not `sent`.

        Call it for each exposure in order: each is in the history of the next alerts.
        """
        known = bool(self.sources)
        new_forced = []
        if known and not self.moves:
            new_forced = [self.point(i, forced=True)]
            if self.forced and i % AGAIN == 0:
                self.forced[-1] = self.forced_source(i - 1, again=True)
            self.forced.append(self.forced_source(i))
        if not self.measurements.detected[i]:
            self.points += new_forced
            return None
        own = self.point(i, forced=False)
        source = self.source(own)
        if not known:
            self.first = own.mjd
            self.prefix = b"" if self.moves else self.object_prefix
        history = () if self.moves else (*self.points, *new_forced)
        alert = self.detection(own, source, history) if sent else None
        self.sources.append(source)
        self.points += [*new_forced, own]
        return alert

    def detection(self, own: Point, source: bytes, history: tuple[Point, ...]) -> SimulatedAlert:
        """The alert of a detection; `source` is its diaSource."""
        parts = [FRAME, varint(own.source_id), SOME, blob("simulated"), NULL, source]
        parts += self.solar_system_parts(own) if self.moves else self.object_parts(own)
        fits = self.cutouts(own)
        for kind in KINDS:
            image = fits[kind]
            parts += [NULL] if image is None else [SOME, varint(len(image)), image]
        return SimulatedAlert(
            survey="lsst",
            body=b"".join(parts),
            alert_id=own.source_id,
            object_id=own.object_id,
            mjd=own.mjd,
            kind=self.measurements.kind,
            fits=fits,
            points=(own, *history),
        )

    def object_parts(self, own: Point) -> list[bytes]:
        """The history and the diaObject, then nulls for the ssSource and the orbit."""
        sources, forced = NULL, NULL
        if self.sources:
            sources, forced = SOME + array(self.sources), SOME + array(self.forced)
        first, last = SOME + double(self.first), SOME + double(own.mjd)
        detections = varint(len(self.sources) + 1)
        return [sources, forced, SOME, self.prefix, first, last, detections, NULL, NULL]

    def solar_system_parts(self, own: Point) -> list[bytes]:
        """Nulls for the history and the diaObject, then the ssSource and the orbit."""
        designation = f"{2026 + self.number % 9} AA{self.number % 10000}"
        apparition = encoders()["ssSource"](
            {
                "diaSourceId": own.source_id,
                "ssObjectId": self.id,
                "designation": designation,
                "ephRa": own.ra,
                "ephDec": own.dec,
                "phaseAngle": 12.5,
                "helioRange": 2.7,
                "topoRange": 1.9,
            }
        )
        orbit = encoders()["mpc_orbits"](
            {
                "id": self.number % 2**31,
                "designation": designation,
                "packed_primary_provisional_designation": "K26A00A",
                "unpacked_primary_provisional_designation": designation,
                "a": 2.7,
                "e": 0.1,
                "i": 7.5,
                "epoch_mjd": float(FIRST_NIGHT),
            }
        )
        return [NULL, NULL, NULL, SOME, apparition, SOME, orbit]

    def cutouts(self, own: Point) -> dict[str, bytes | None]:
        """The three cutouts of a detection. Sometimes one or more are missing."""
        assert own.flux is not None
        assert own.ra is not None
        assert own.dec is not None
        science, difference = self.scene.images(own.flux, self.rng)
        images = {"difference": difference, "science": science, "template": self.scene.template}
        assert own.visit is not None
        assert own.detector is not None
        psfs = lsst_cutouts.psf_images(self.scene.seed, own.visit, own.detector)
        sky = float(self.scene.pixel_noise) ** 2
        coordinates = (self.scene.x + 1, self.scene.y + 1, *self.pc, own.ra, own.dec)
        fits: dict[str, bytes | None] = {}
        for kind, image in images.items():
            variance = sky + np.abs(image) * np.float32(0.03 * sky**0.5)
            fits[kind] = lsst_cutouts.fits(
                image, variance, psfs[kind], self.corner, self.angle, coordinates
            )
        return cutout_images.drop_cutouts(fits, self.null_cutouts, self.rng)


def flagged(i: int) -> list[str]:
    """The flags of the detection in exposure `i`."""
    return [name for name, (period, first) in FLAGGED.items() if i % period == first]


def forced_id(visit: Exposure, i: int) -> int:
    """What identifies the forced point of an object in exposure `i`."""
    return visit_id(visit, i) * 1000 + visit.detector


def visit_id(visit: Exposure, i: int) -> int:
    """A visit's id: the day and a count, for example 2026040700201."""
    day = date(1858, 11, 17) + timedelta(days=int(visit.mjd))
    return int(f"{day:%Y%m%d}") * 100_000 + i
