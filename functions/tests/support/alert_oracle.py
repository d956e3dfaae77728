"""What Stampede should read from an alert, told a second time: slowly, by fastavro, row by row.

It shares nothing with the vectorised way but the schemas.
"""

import gzip
import io
import math

import fastavro
import numpy as np

from stampede.alerts import schemas

BAND = {1: "g", 2: "r", 3: "i"}
TAI = 37 / 86400


def record_of(message: bytes) -> tuple[str, dict]:
    """Survey and record of a message."""
    if message[0] == 0:
        schema = schemas.parsed(schemas.rubin_schema(int.from_bytes(message[1:5], "big")))
        return "lsst", fastavro.schemaless_reader(io.BytesIO(message[5:]), schema)
    return "ztf", next(fastavro.reader(io.BytesIO(message)))


def tidy(value):
    return None if isinstance(value, float) and not math.isfinite(value) else value


def first(row: dict, *names: str):
    return next((tidy(row[name]) for name in names if name in row), None)


def micros(value) -> float | None:
    return None if value is None else value.timestamp() / 86400 + 40587 + TAI


def head(message: bytes) -> dict:
    """Identity of an alert: survey, alert_id, object_id, mjd, processed_mjd."""
    survey, record = record_of(message)
    if survey == "ztf":
        own = record["candidate"]
        mjd = own["jd"] - 2400000.5 + TAI
        return dict(survey=survey, alert_id=record["candid"], object_id=record["objectId"],
                    mjd=mjd, processed_mjd=mjd)  # fmt: skip
    own = record["diaSource"]
    mjd = first(own, "midpointMjdTai", "midPointTai")
    processed = micros(own.get("time_processed")) or first(own, "timeProcessedMjdTai") or mjd
    object_id = own.get("diaObjectId") or own.get("ssObjectId") or own["diaSourceId"]
    return dict(survey=survey, alert_id=own["diaSourceId"], object_id=str(object_id), mjd=mjd,
                processed_mjd=processed)  # fmt: skip


def cutouts(message: bytes) -> dict[str, bytes | None]:
    """The FITS bytes of each kind."""
    survey, record = record_of(message)
    fits = {}
    for kind in ("science", "template", "difference"):
        sent = record.get(f"cutout{kind.title()}")
        if survey == "ztf" and sent is not None:
            sent = gzip.decompress(sent["stampData"])
        fits[kind] = sent
    return fits


def detections(message: bytes) -> list[dict]:
    """Every point of the light curve, as rows of the model."""
    survey, record = record_of(message)
    identity = head(message)
    if survey == "lsst":
        rows = [_rubin(record["diaSource"], identity, False)]
        rows += [_rubin(row, identity, False) for row in record["prvDiaSources"] or []]
        rows += [_rubin(row, identity, True) for row in record["prvDiaForcedSources"] or []]
        rows += [_rubin_limit(r, identity) for r in record.get("prvDiaNondetectionLimits") or []]
    else:
        drb = "drb" in record["candidate"]
        rows = [_ztf(record["candidate"], identity, drb)]
        rows += [_ztf(row, identity, drb) for row in record["prv_candidates"] or []]
        rows += [_ztf_forced(row, identity) for row in record.get("fp_hists") or []]
    return rows


def _row(identity: dict, **values) -> dict:
    single = lambda x: None if x is None else float(np.float32(x))
    row = dict.fromkeys(
        ("band", "ra", "dec", "flux", "flux_err", "total_flux", "total_flux_err", "reliability",
         "visit", "detector")
    )  # fmt: skip
    row |= dict(object_id=identity["object_id"], survey=identity["survey"], withdrawn=False,
                processed_mjd=identity["processed_mjd"]) | values  # fmt: skip
    for name in ("flux", "flux_err", "total_flux", "total_flux_err", "reliability"):
        row[name] = single(row[name])
    return row


def _rubin(row: dict, identity: dict, forced: bool) -> dict:
    processed = micros(row.get("time_processed")) or first(row, "timeProcessedMjdTai")
    return _row(
        identity, forced=forced, limit=False,
        source_id=row["diaForcedSourceId" if forced else "diaSourceId"],
        mjd=first(row, "midpointMjdTai", "midPointTai"), band=first(row, "band", "filterName"),
        ra=first(row, "ra"), dec=first(row, "dec", "decl"),
        flux=first(row, "psfFlux", "psFlux"), flux_err=first(row, "psfFluxErr", "psFluxErr"),
        total_flux=first(row, "scienceFlux", "totFlux"),
        total_flux_err=first(row, "scienceFluxErr", "totFluxErr"),
        reliability=first(row, "reliability"), visit=first(row, "visit", "ccdVisitId"),
        detector=row.get("detector"),
        withdrawn=first(row, "timeWithdrawnMjdTai") is not None
        or row.get("time_withdrawn") is not None,
        processed_mjd=processed or identity["processed_mjd"],
    )  # fmt: skip


def _rubin_limit(row: dict, identity: dict) -> dict:
    return _row(
        identity, forced=False, limit=True, source_id=row["ccdVisitId"], visit=row["ccdVisitId"],
        mjd=first(row, "midpointMjdTai", "midPointTai"), band=first(row, "band", "filterName"),
        flux_err=tidy(row["diaNoise"]),
    )  # fmt: skip


def flux_of(mag: float) -> float:
    return 10 ** ((31.4 - mag) / 2.5)


def _ztf(row: dict, identity: dict, drb: bool) -> dict:
    mjd = row["jd"] - 2400000.5 + TAI
    common = dict(
        forced=False, mjd=mjd, band=BAND.get(row["fid"]), ra=tidy(row.get("ra")),
        dec=tidy(row.get("dec")), visit=row["pid"], detector=row.get("rcid"), processed_mjd=mjd,
        reliability=tidy(row.get("drb" if drb else "rb")),
    )  # fmt: skip
    if row.get("candid") is None:
        depth = tidy(row["diffmaglim"])
        error = None if depth is None else flux_of(depth) / 5
        return _row(identity, limit=True, source_id=row["pid"], flux_err=error, **common)
    flux = flux_of(row["magpsf"])
    return _row(
        identity, limit=False, source_id=row["candid"],
        flux=flux if row["isdiffpos"] in ("t", "1") else -flux,
        flux_err=flux * row["sigmapsf"] * math.log(10) / 2.5, **common,
    )  # fmt: skip


def _ztf_forced(row: dict, identity: dict) -> dict:
    given = {
        name: None if tidy(row[name]) in (None, -99999.0) else row[name]
        for name in ("forcediffimflux", "forcediffimfluxunc", "magzpsci")
    }
    scale = None if given["magzpsci"] is None else flux_of(given["magzpsci"])
    times = lambda x: None if x is None or scale is None else x * scale
    return _row(
        identity, forced=True, limit=False, source_id=row["pid"], visit=row["pid"],
        mjd=row["jd"] - 2400000.5 + TAI, band=BAND.get(row["fid"]), detector=row["rcid"],
        flux=times(given["forcediffimflux"]), flux_err=times(given["forcediffimfluxunc"]),
    )  # fmt: skip
