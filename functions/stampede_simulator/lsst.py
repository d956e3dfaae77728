"""Simulated Rubin alerts in Confluent framing: schema 11.1, and 10.0 before an upgrade."""

import math
from collections.abc import Iterator
from datetime import date, timedelta

import numpy as np

from stampede.alerts.columns import FLAGS
from stampede.alerts.container import varint
from stampede.alerts.surveys.rubin_schemas import NEWEST_RUBIN
from stampede_simulator import cutout_images, lsst_cutouts
from stampede_simulator.alert_bytes import (
    NULL,
    SOME,
    SimulatedAlert,
    array,
    blob,
    double,
)
from stampede_simulator.lsst_rows import RubinRows, encoders, flagged
from stampede_simulator.sky import FIRST_NIGHT, LSST, Exposure, Measurements, Point

OLDER_RUBIN = 1000  # as the real alerts at hand
KINDS = ("difference", "science", "template")  # in the order of the packet
FORCED_DAYS = 40  # of forced photometry in a packet: real ones have 1 row of it to 3 of diaSources
AGAIN = 7  # of so many exposures one is processed again, which gives its forced points other ids
SIZES = (30,) * 47 + (41, 60, 102)  # pixels; the eight real alerts at hand have 30

ORBIT = 2.7  # au: of every body, a circle in the plane of the Earth's
SYNODIC = 365.25 / (1 - ORBIT**-1.5)  # days from one opposition to the next


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
        upgrade: float = 0.0,
    ) -> None:
        self.measurements, self.visits, self.rng = measurements, visits, rng
        self.null_cutouts, self.upgrade, self.version = null_cutouts, upgrade, OLDER_RUBIN
        self.moves = measurements.kind == "mover"
        self.base = 10**17 + (seed % 800) * 10**15
        self.number = number + self.moves * 10**10
        self.id = self.base + self.number
        # Real packets have two ways to leave a value out: null, or 0 and NaN (as in schema 10.0).
        self.none: tuple[int | None, float | None] = (0, math.nan) if number % 2 else (None, None)
        self.sources: list[bytes] = []
        self.forced: list[bytes] = []
        self.detected: list[int] = []  # exposures of `sources`
        self.measured: list[Point] = []  # and their points
        self.forced_points: list[Point] = []
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
        ids = {
            "diaObjectId": self.none[0] if self.moves else self.id,
            "ssObjectId": self.id if self.moves else self.none[0],
        }
        # Its random numbers are its own, so that no other value changes with them.
        self.rows = RubinRows([seed, self.number, 0], host, self.none, ids)

    def reliability(self, i: int) -> float:
        """The score of the detection in exposure `i`: 0.5 to 1, another one in each."""
        return float(np.float32(0.5 + (self.number * 0.754877666 + i * 0.569840291) % 0.5))

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
            total_flux_err=float(np.float32(1.0098 * measured.flux_err[i])),
            reliability=None if forced else self.reliability(i),
            visit=visit_id(visit, i),
            detector=visit.detector,
            flags=None if forced else sum(1 << FLAGS.index(name) for name in flagged(i)),
        )

    def forced_source(self, i: int, again: bool = False) -> bytes:
        """The diaForcedSource of exposure `i`, or of its visit that was processed `again`."""
        number = self.source_id(i, 6 if again else 5)
        return self.rows.forced_source(self.point(i, forced=True), i, number, again)

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
        if known and not self.moves:
            self.measure_again(i)
        if not self.measurements.detected[i]:
            return None
        if self.version != NEWEST_RUBIN and self.visits[i].mjd >= self.upgrade:
            self.version = NEWEST_RUBIN
            self.sources = [self.source(point, n) for point, n in self.history]
        own = self.point(i, forced=False)
        source = self.source(own, i)
        if not known:
            self.first = own.mjd
            self.prefix = b"" if self.moves else self.object_prefix
        alert = self.detection(own, i, source) if sent else None
        self.sources.append(source)
        self.detected.append(i)
        self.measured.append(own)
        return alert

    @property
    def history(self) -> Iterator[tuple[Point, int]]:
        """The detections so far, and their exposures."""
        return zip(self.measured, self.detected, strict=True)

    def source(self, point: Point, i: int) -> bytes:
        """The diaSource of exposure `i`, in the schema of now."""
        x, y = self.corner(i)
        return self.rows.source(point, i, (x + self.scene.x, y + self.scene.y), self.version)

    def measure_again(self, i: int) -> None:
        """Add the forced photometry of exposure `i`, and drop what is too old for a packet."""
        point = self.point(i, forced=True)
        if self.forced and i % AGAIN == 0:
            self.forced[-1] = self.forced_source(i - 1, again=True)
        self.forced.append(self.forced_source(i))
        self.forced_points.append(point)
        while self.forced_points[0].mjd < point.mjd - FORCED_DAYS:
            del self.forced_points[0], self.forced[0]

    def corner(self, i: int) -> tuple[int, int]:
        """The pixel at the lower left of the cutouts of exposure `i`, anywhere on the detector."""
        number = self.number + 7919 * i
        return 100 + number * 2_654_435_761 % 3800, 100 + number * 40_503 % 3700

    def detection(self, own: Point, i: int, source: bytes) -> SimulatedAlert:
        """The alert of the detection in exposure `i`; `source` is its diaSource."""
        frame = b"\x00" + self.version.to_bytes(4, "big")
        parts = [frame, varint(own.source_id), SOME, blob("simulated"), NULL, source]
        parts += self.solar_system_parts(own) if self.moves else self.object_parts(own)
        history = () if self.moves else (*self.measured, *self.forced_points)
        fits = self.cutouts(own, self.corner(i))
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
        angle, distance = seen_from_earth(own.mjd, self.number)
        apparition = encoders()["ssSource"](
            {
                "diaSourceId": own.source_id,
                "ssObjectId": self.id,
                "designation": designation,
                "ephRa": own.ra,
                "ephDec": own.dec,
                "phaseAngle": angle,
                "helioRange": ORBIT,
                "topoRange": distance,
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

    def cutouts(self, own: Point, corner: tuple[int, int]) -> dict[str, bytes | None]:
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
                image, variance, psfs[kind], corner, self.angle, coordinates
            )
        return cutout_images.drop_cutouts(fits, self.null_cutouts, self.rng)


def forced_id(visit: Exposure, i: int) -> int:
    """What identifies the forced point of an object in exposure `i`."""
    return visit_id(visit, i) * 1000 + visit.detector


def visit_id(visit: Exposure, i: int) -> int:
    """A visit's id: the day and a count, for example 2026040700201."""
    day = date(1858, 11, 17) + timedelta(days=int(visit.mjd))
    return int(f"{day:%Y%m%d}") * 100_000 + i


def seen_from_earth(mjd: float, number: int) -> tuple[float, float]:
    """Phase angle in degrees and distance in au of a body on its circle, seen from the Earth's.

    Bodies differ in when they are in opposition.
    """
    apart = 2 * math.pi * (mjd / SYNODIC + 0.618 * number)
    distance = math.sqrt(1 + ORBIT**2 - 2 * ORBIT * math.cos(apart))
    cosine = (ORBIT**2 + distance**2 - 1) / (2 * ORBIT * distance)
    return math.degrees(math.acos(min(1.0, max(-1.0, cosine)))), distance
