"""Simulated ZTF alerts: schema 4.02, each an Avro object container with the schema inside."""

import string
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from stampede.alerts.container import varint
from stampede.alerts.schemas import simplify
from stampede_simulator import cutout_images
from stampede_simulator.alert_bytes import (
    NULL,
    SOME,
    SimulatedAlert,
    array,
    blob,
    encoder,
    named_types,
)
from stampede_simulator.sky import NJY, ZTF, Exposure, Measurements, Point
from stampede_simulator.ztf_container import container, schema

KINDS = ("science", "template", "difference")  # in the order of the packet
CODECS = ("null", "deflate", "snappy")
HISTORY = 30.0  # days
FWHM = 2.0  # pixels
ZERO_POINT = 26.275  # AB magnitude of 1 DN
TAI_UTC = 37 / 86400  # days, since 2017
NIGHT_ZERO = 57754  # MJD of nid 0
FAILED = -99999.0  # the value of failed forced photometry
FILTER = {"g": 1, "r": 2, "i": 3}
REFERENCE_ERROR = 0.015  # mag, of a source of the reference image


@cache
def encoders() -> dict[str, Callable[[dict[str, Any]], bytes]]:
    """One encoder for each record. Values that are not simulated are -999, as in ZTF, or null."""
    types = named_types(simplify(schema()))
    blank = {"float": -999.0, "double": -999.0, "int": 0, "long": 0, "string": "null"}
    made = {name: encoder(types[name], **blank) for name in ("candidate", "fp_hist")}
    made["detection"] = encoder(types["prv_candidate"], **blank)
    made["limit"] = encoder(types["prv_candidate"])
    return made


class Row(NamedTuple):
    """A history row: its time, its bytes, and the expected point."""

    mjd: float
    body: bytes
    point: Point


class ZtfObject:
    """One object and its alerts through the exposures of its field."""

    def __init__(
        self,
        seed: int,
        number: int,
        measurements: Measurements,
        visits: list[Exposure],
        rng: np.random.Generator,
        null_cutouts: float = 0.0,
        codec: str = "null",
    ) -> None:
        self.measurements, self.visits, self.rng = measurements, visits, rng
        self.number = number
        self.null_cutouts, self.codec = null_cutouts, codec
        self.id = f"ZTF25{letters(number * 1000 + seed % 800)}"
        self.candidates: list[Row] = []
        self.forced: list[Row] = []
        self.detections = 0
        offset = tuple(rng.choice([-0.375, -0.125, 0.125, 0.375], 2).tolist())
        self.nearest = {
            "distnr": 0.25,
            "magnr": NJY - 2.5 * np.log10(measurements.host),
            "sigmagnr": REFERENCE_ERROR,
        }
        self.to_counts = 10 ** ((ZERO_POINT - NJY) / 2.5)
        host, depth = measurements.host * self.to_counts, ZTF.depth * self.to_counts
        self.scene = cutout_images.Scene(
            seed, cutout_images.ZTF_SIZE, host, depth, FWHM, offset, rng
        )
        template = cutout_images.ztf_fits(self.scene.template)
        self.template = template, cutout_images.gzipped(template)

    def point(self, i: int) -> Point:
        """The detection of exposure `i`."""
        visit = self.visits[i]
        host, flux = self.measurements.host, float(self.measurements.flux[i])
        flux_err = float(self.measurements.flux_err[i])
        host_err = host * REFERENCE_ERROR * np.log(10) / 2.5
        return Point(
            object_id=self.id,
            survey="ztf",
            forced=False,
            limit=False,
            source_id=pid(visit) * 1_000_000 + self.number % 1_000_000,
            mjd=visit.mjd,
            band=visit.band,
            ra=float(self.measurements.ras[i]),
            dec=float(self.measurements.decs[i]),
            flux=flux,
            flux_err=flux_err,
            total_flux=host + flux,
            total_flux_err=float(np.hypot(host_err, flux_err)),
            reliability=float(np.float32(0.5 + 0.001 * (i % 500))),
            visit=pid(visit),
            detector=visit.detector,
            limiting_mag=float(np.float32(limit(flux_err))),
            rb=float(np.float32(0.4 + 0.001 * (i % 500))),
        )

    def exposure(self, i: int) -> dict[str, Any]:
        """The fields of exposure `i` that every kind of row has."""
        visit = self.visits[i]
        return {
            "jd": visit.mjd - TAI_UTC + 2400000.5,
            "fid": FILTER[visit.band],
            "pid": pid(visit),
            "diffmaglim": limit(float(self.measurements.flux_err[i])),
            "programid": 1,
            "field": 505,
            "rcid": visit.detector,
            "magzpsci": ZERO_POINT,
        }

    def measured(self, point: Point) -> dict[str, Any]:
        """The fields of a detection that an alert and its later history share."""
        assert point.flux is not None
        assert point.flux_err is not None
        size = abs(point.flux)
        return {
            "nid": int(point.mjd - TAI_UTC) - NIGHT_ZERO,
            "candid": point.source_id,
            "isdiffpos": "t" if point.flux > 0 else "f",
            "ra": point.ra,
            "dec": point.dec,
            "magpsf": NJY - 2.5 * np.log10(size),
            "sigmapsf": 2.5 / np.log(10) * point.flux_err / size,
            "rb": point.rb,
            "rbversion": "simulated",
            **self.nearest,
        }

    def forced_row(self, i: int) -> Row:
        """Forced photometry on exposure `i`; one in ten fails."""
        flux, error = float(self.measurements.flux[i]), float(self.measurements.flux_err[i])
        failed = i % 10 == 7
        record = {
            "forcediffimflux": FAILED if failed else flux * self.to_counts,
            "forcediffimfluxunc": FAILED if failed else error * self.to_counts,
            "procstatus": "61" if failed else "0",
            "ranr": self.measurements.ra,
            "decnr": self.measurements.dec,
            "exptime": ZTF.exposure,
            **self.nearest,
        }
        point = self.point(i)._replace(
            forced=True,
            source_id=pid(self.visits[i]),
            ra=None,
            dec=None,
            flux=None if failed else flux,
            flux_err=None if failed else error,
            reliability=None,
            procstatus="61" if failed else "0",
            rb=None,
        )
        if failed:
            point = point._replace(total_flux=None, total_flux_err=None)
        return Row(point.mjd, encoders()["fp_hist"](self.exposure(i) | record), point)

    def candidate_row(self, i: int) -> Row:
        """The row of exposure `i` in later alerts: a detection or an upper limit."""
        point = self.point(i)
        if self.measurements.detected[i]:
            record = self.exposure(i) | self.measured(point)
            return Row(point.mjd, encoders()["detection"](record), point._replace(reliability=None))
        point = point._replace(
            limit=True,
            source_id=pid(self.visits[i]),
            ra=None,
            dec=None,
            flux=None,
            reliability=None,
            rb=None,
            total_flux=None,
            total_flux_err=None,
        )
        record = {"nid": int(point.mjd - TAI_UTC) - NIGHT_ZERO, "rbversion": "simulated"}
        return Row(point.mjd, encoders()["limit"](self.exposure(i) | record), point)

    def alert(self, i: int, sent: bool) -> SimulatedAlert | None:
        """The alert of exposure `i`, or None without a detection, or if it is not `sent`.

        Call it for each exposure in order: each is in the history of the next alerts.
        """
        detected = bool(self.measurements.detected[i])
        self.detections += detected
        alert = self.detection(i) if detected and sent else None
        self.candidates.append(self.candidate_row(i))
        self.forced.append(self.forced_row(i))
        return alert

    def detection(self, i: int) -> SimulatedAlert:
        """The alert of a detection, with the history of the 30 days before it."""
        own = self.point(i)
        oldest = own.mjd - HISTORY
        candidates = [row for row in self.candidates if row.mjd >= oldest]
        forced = [row for row in self.forced if row.mjd >= oldest]
        candidate = (
            self.exposure(i)
            | self.measured(own)
            | {"drb": own.reliability, "drbversion": "simulated"}
            | {
                "ranr": self.measurements.ra,
                "decnr": self.measurements.dec,
                "exptime": ZTF.exposure,
            }
            | {"ndethist": self.detections, "ncovhist": i + 1, "nmtchps": 1, "rfid": 505120100}
            | {"jdstartref": 2458000.5, "jdendref": 2458100.5, "nframesref": 15, "nmatches": 300}
        )
        parts = [
            *(blob(text) for text in ("4.02", "ZTF (www.ztf.caltech.edu)", self.id)),
            varint(own.source_id),
            encoders()["candidate"](candidate),
        ]
        for rows in (candidates, forced):
            parts.append(SOME + array([row.body for row in rows]) if rows else NULL)
        fits, stamps = self.cutouts(own)
        for kind in KINDS:
            stamp = stamps[kind]
            name = f"candid{own.source_id}_{kind}.fits.gz"
            parts.append(NULL if fits[kind] is None else SOME + blob(name) + blob(stamp))
        return SimulatedAlert(
            survey="ztf",
            body=container(b"".join(parts), self.codec),
            alert_id=own.source_id,
            object_id=self.id,
            mjd=own.mjd,
            kind=self.measurements.kind,
            fits=fits,
            points=(own, *(row.point for row in (*candidates, *forced))),
        )

    def cutouts(self, own: Point) -> tuple[dict[str, bytes | None], dict[str, bytes]]:
        """The three cutouts, plain and gzipped. Sometimes one or more are missing."""
        assert own.flux is not None
        science, difference = map(
            cutout_images.ztf_fits, self.scene.images(own.flux * self.to_counts, self.rng)
        )
        template, template_stamp = self.template
        fits: dict[str, bytes | None] = {
            "science": science,
            "template": template,
            "difference": difference,
        }
        stamps = {
            "science": cutout_images.gzipped(science),
            "template": template_stamp,
            "difference": cutout_images.gzipped(difference),
        }
        return cutout_images.drop_cutouts(fits, self.null_cutouts, self.rng), stamps


def pid(visit: Exposure) -> int:
    """Processing id: night, fraction of the day, quadrant, ``15``."""
    utc = visit.mjd - TAI_UTC
    night, fraction = int(utc) - NIGHT_ZERO, int(utc % 1 * 100_000)
    return night * 10**9 + fraction * 10**4 + visit.detector * 100 + 15


def limit(error: float) -> float:
    """Magnitude of 5 sigma."""
    return float(NJY - 2.5 * np.log10(5 * error))


def letters(number: int) -> str:
    """A number as seven or more letters, like the names of ZTF's objects."""
    name = ""
    while number or len(name) < 7:
        number, digit = divmod(number, 26)
        name = string.ascii_lowercase[digit] + name
    return name
