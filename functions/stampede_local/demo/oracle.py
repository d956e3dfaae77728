"""The oracle of tests: the expected content of an alert, computed with fastavro row by row.

The oracle is slow. It shares only the schemas with the code that it checks: not the framing, the
decoder or the surveys' modules.
"""

import gzip
import io
import math
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple

import fastavro
import numpy as np

from stampede.alerts import schemas
from stampede.alerts.surveys.rubin_schemas import rubin_schemas
from stampede.errors import Undecodable

KINDS = ("science", "template", "difference")
ZTF_BANDS = {1: "g", 2: "r", 3: "i"}
WINTER_BANDS = {1: "Y", 2: "J", 3: "Hs"}
TAI_MINUS_UTC = 37 / 86400
ZTF_NO_VALUE = -99999.0
SINGLE_PRECISION = (
    *("flux", "flux_err", "total_flux", "total_flux_err", "reliability"),
    *("limiting_mag", "rb"),
)
FLAGS = (
    "centroid_flag",
    "psfFlux_flag",
    "psfFlux_flag_edge",
    "psfFlux_flag_noGoodPixels",
    "forced_PsfFlux_flag",
    "shape_flag",
    "isDipole",
    "glint_trail",
    "pixelFlags",
    "pixelFlags_bad",
    "pixelFlags_cr",
    "pixelFlags_crCenter",
    "pixelFlags_edge",
    "pixelFlags_interpolated",
    "pixelFlags_interpolatedCenter",
    "pixelFlags_nodata",
    "pixelFlags_nodataCenter",
    "pixelFlags_offimage",
    "pixelFlags_saturated",
    "pixelFlags_saturatedCenter",
    "pixelFlags_streak",
    "pixelFlags_streakCenter",
    "pixelFlags_suspect",
    "pixelFlags_suspectCenter",
    "pixelFlags_injected",
    "pixelFlags_injectedCenter",
    "pixelFlags_injected_template",
    "pixelFlags_injected_templateCenter",
)

Record = dict[str, Any]


class ExpectedAlert(NamedTuple):
    """Identity of an alert, and a digest of each FITS file that it carries."""

    survey: str
    alert_id: int
    object_id: str
    cutouts: dict[str, bytes]


def digest(fits: bytes) -> bytes:
    """A short digest that stands for the bytes of a FITS file."""
    return blake2b(fits, digest_size=16).digest()


def expected_alert(message: bytes) -> ExpectedAlert | None:
    """Identity and images of the alert in a message; None if it holds no alert to store."""
    try:
        survey, record = read_record(message)
        identity = _head(survey, record)
        files = _cutouts(survey, record)
    except Exception:  # any fault makes the message a dead letter
        return None
    digests = {kind: digest(fits) for kind, fits in files.items() if fits is not None}
    return ExpectedAlert(survey, identity["alert_id"], identity["object_id"], digests)


def unframe(message: bytes) -> tuple[Any, bytes]:
    """Writer schema and record bytes of a message.

    Raises `ValueError` if it has no known frame, `Undecodable` if its schema id is unknown.
    """
    if message[:4] == b"Obj\x01":
        block: Any
        (block,) = fastavro.block_reader(io.BytesIO(message))
        if block.num_records != 1:
            raise ValueError(f"the container holds {block.num_records} records")
        return block.writer_schema, block.bytes_.getvalue()
    if len(message) >= 5 and message[0] == 0:
        schema_id = int.from_bytes(message[1:5], "big")
        if schema_id not in rubin_schemas():
            raise Undecodable(f"unknown schema id {schema_id}")
        return schemas.parsed(rubin_schemas()[schema_id]), message[5:]
    raise ValueError("neither an Avro container nor Confluent framing")


def read_record(message: bytes) -> tuple[str, Record]:
    """Survey and record of a message. Raises if the message is not exactly one whole record."""
    schema, data = unframe(message)
    stream = io.BytesIO(data)
    record: Any = fastavro.schemaless_reader(stream, schema)  # noqa: TID251
    if stream.read(1):
        raise ValueError("bytes are left over after the record")
    if "objectid" in record:
        return "winter", record
    if "psfFlux" in record.get("candidate", ()):
        return "desirt", record
    return ("ztf" if "candidate" in record else "lsst"), record


def head(message: bytes) -> Record:
    """Identity of an alert: survey, alert_id, object_id, mjd, processed_mjd."""
    return _head(*read_record(message))


def cutouts(message: bytes) -> dict[str, bytes | None]:
    """The FITS bytes of each kind."""
    return _cutouts(*read_record(message))


def detections(message: bytes) -> list[Record]:
    """Every point of the light curve, as rows of `columns.DETECTION`."""
    survey, record = read_record(message)
    identity = _head(survey, record)
    if survey == "lsst":
        rows = [_rubin(record["diaSource"], identity, False)]
        rows += [_rubin(row, identity, False) for row in record["prvDiaSources"] or []]
        rows += [_rubin(row, identity, True) for row in record["prvDiaForcedSources"] or []]
        rows += [_rubin_limit(r, identity) for r in record.get("prvDiaNondetectionLimits") or []]
    elif survey == "desirt":
        rows = [_desirt(record["candidate"], identity, record["candid"])]
        rows += [_desirt(row, identity) for row in record["fp_hists"]]
    elif survey == "winter":
        own = _winter(record["candidate"], identity)
        rows = [own | {"processed_mjd": own["mjd"] + 1 / 86400}]
        rows += [_winter(row, identity) for row in record["prv_candidates"] or []]
    else:
        drb = "drb" in record["candidate"]
        own = _ztf(record["candidate"], identity, drb)
        # A second later than its rounded copies in later histories, so that it wins over them.
        rows = [own | {"processed_mjd": own["mjd"] + 1 / 86400}]
        rows += [_ztf(row, identity, drb) for row in record["prv_candidates"] or []]
        rows += [_ztf_forced(row, identity) for row in record.get("fp_hists") or []]
    return rows


def _head(survey: str, record: Record) -> Record:
    if survey == "ztf":
        mjd = _mjd_of_jd(record["candidate"]["jd"])
        return {
            "survey": survey,
            "alert_id": record.get("candid") or record["candidate"]["candid"],
            "object_id": record["objectId"],
            "mjd": mjd,
            "processed_mjd": mjd,
            "programid": record["candidate"]["programid"],
        }
    if survey == "desirt":
        mjd = record["candidate"]["mjd"] + TAI_MINUS_UTC
        identity = {"alert_id": record["candid"], "object_id": record["objectId"]}
        return {"survey": survey, **identity, "mjd": mjd, "processed_mjd": mjd}
    if survey == "winter":
        mjd = _mjd_of_jd(record["candidate"]["jd"])
        identity = {"alert_id": record["candid"], "object_id": record["objectid"]}
        return {"survey": survey, **identity, "mjd": mjd, "processed_mjd": mjd}
    source = record["diaSource"]
    mjd = _first(source, "midpointMjdTai", "midPointTai")
    return {
        "survey": survey,
        "alert_id": source["diaSourceId"],
        "object_id": str(
            source.get("diaObjectId") or source.get("ssObjectId") or source["diaSourceId"]
        ),
        "mjd": mjd,
        "processed_mjd": _processed(source) or mjd,
    }


def _cutouts(survey: str, record: Record) -> dict[str, bytes | None]:
    files: dict[str, bytes | None] = {}
    for kind in KINDS:
        name = f"cutout_{kind}" if survey == "winter" else f"cutout{kind.title()}"
        sent = record.get(name)
        if survey != "lsst" and sent is not None:
            sent = gzip.decompress(sent["stampData"] if survey == "ztf" else sent)
        files[kind] = sent
    return files


def _row(identity: Record, **values: Any) -> Record:
    optional = ("band", "ra", "dec", *SINGLE_PRECISION, "visit", "detector", "flags", "procstatus")
    row: Record = dict.fromkeys((*optional, "programid", "moved"))
    row |= {name: identity[name] for name in ("object_id", "survey", "processed_mjd")}
    row |= {"withdrawn": False, **values}
    for name in SINGLE_PRECISION:
        row[name] = None if row[name] is None else float(np.float32(row[name]))
    return row


def _rubin(row: Record, identity: Record, forced: bool) -> Record:
    return _row(
        identity,
        forced=forced,
        limit=False,
        source_id=_forced_id(row) if forced else row["diaSourceId"],
        mjd=_first(row, "midpointMjdTai", "midPointTai"),
        band=_first(row, "band", "filterName"),
        ra=_first(row, "ra"),
        dec=_first(row, "dec", "decl"),
        flux=_first(row, "psfFlux", "psFlux"),
        flux_err=_first(row, "psfFluxErr", "psFluxErr"),
        total_flux=_first(row, "scienceFlux", "totFlux"),
        total_flux_err=_first(row, "scienceFluxErr", "totFluxErr"),
        reliability=_first(row, "reliability"),
        visit=_first(row, "visit", "ccdVisitId"),
        detector=row.get("detector"),
        withdrawn=_first(row, "timeWithdrawnMjdTai") is not None
        or row.get("time_withdrawn") is not None,
        processed_mjd=_processed(row) or identity["processed_mjd"],
        flags=_flags(row),
    )


def _forced_id(row: Record) -> int:
    visit, detector = row.get("visit"), row.get("detector")
    if visit is None or detector is None or not 0 < visit < 2**63 // 1000:
        return int(row["diaForcedSourceId"])
    return visit * 1000 + detector if 0 <= detector < 1000 else int(row["diaForcedSourceId"])


def _flags(row: Record) -> int | None:
    sent = {name: row[name] for name in FLAGS if row.get(name) is not None}
    return sum(2 ** FLAGS.index(name) for name, set_ in sent.items() if set_) if sent else None


def _rubin_limit(row: Record, identity: Record) -> Record:
    return _row(
        identity,
        forced=False,
        limit=True,
        source_id=row["ccdVisitId"],
        visit=row["ccdVisitId"],
        mjd=_first(row, "midpointMjdTai", "midPointTai"),
        band=_first(row, "band", "filterName"),
        flux_err=_finite(row["diaNoise"]),
    )


def _ztf(row: Record, identity: Record, drb: bool) -> Record:
    mjd = _mjd_of_jd(row["jd"])
    common = {
        "forced": False,
        "mjd": mjd,
        "band": ZTF_BANDS.get(row["fid"]),
        "ra": _finite(row.get("ra")),
        "dec": _finite(row.get("dec")),
        "visit": row["pid"],
        "detector": row.get("rcid"),
        "processed_mjd": mjd,
        "reliability": _finite(row.get("drb" if drb else "rb")),
        "limiting_mag": _not_negative(row["diffmaglim"]),
        "rb": _not_negative(row["rb"]),
        "programid": row["programid"],
    }
    if row.get("candid") is None:
        depth = _finite(row["diffmaglim"])
        error = None if depth is None else _flux(depth) / 5
        return _row(identity, limit=True, source_id=row["pid"], flux_err=error, **common)
    size = _flux(row["magpsf"])
    flux = size if row["isdiffpos"] in ("t", "1") else -size
    flux_err = size * row["sigmapsf"] * math.log(10) / 2.5
    return _row(
        identity,
        limit=False,
        source_id=row["candid"],
        flux=flux,
        flux_err=flux_err,
        **_ztf_total(row, flux, flux_err),
        **common,
    )


def _desirt(row: Record, identity: Record, candid: int | None = None) -> Record:
    mjd = row["mjd"] + TAI_MINUS_UTC
    return _row(
        identity,
        forced=candid is None,
        limit=False,
        source_id=round(mjd * 86_400_000) if candid is None else candid,
        mjd=mjd,
        band=row["band"],
        ra=row.get("ra"),
        dec=row.get("dec"),
        flux=row["psfFlux"],
        flux_err=row["psfFluxErr"],
        reliability=row.get("reliability"),
        limiting_mag=row["diffmaglim"],
    )


def _winter(row: Record, identity: Record) -> Record:
    mjd, flux = _mjd_of_jd(row["jd"]), _flux(row["magpsf"])
    return _row(
        identity,
        forced=False,
        limit=False,
        source_id=row["candid"],
        mjd=mjd,
        band=WINTER_BANDS.get(row["fid"]),
        ra=row["ra"],
        dec=row["dec"],
        flux=flux if row["isdiffpos"] else -flux,
        flux_err=flux * row["sigmapsf"] * math.log(10) / 2.5,
        reliability=row.get("rb"),
        limiting_mag=row.get("diffmaglim"),
        detector=row.get("boardid"),
        withdrawn=row.get("deprecated", False),
        processed_mjd=mjd,
    )


def _ztf_forced(row: Record, identity: Record) -> Record:
    counts, error, zero_point = (
        None if _finite(row[name]) in (None, ZTF_NO_VALUE) else row[name]
        for name in ("forcediffimflux", "forcediffimfluxunc", "magzpsci")
    )
    scale = None if zero_point is None else _flux(zero_point)
    flux = None if counts is None or scale is None else counts * scale
    flux_err = None if error is None or scale is None else error * scale
    return _row(
        identity,
        forced=True,
        limit=False,
        source_id=row["pid"],
        visit=row["pid"],
        mjd=_mjd_of_jd(row["jd"]),
        band=ZTF_BANDS.get(row["fid"]),
        detector=row["rcid"],
        flux=flux,
        flux_err=flux_err,
        **_ztf_total(row, flux, flux_err),
        procstatus=row.get("procstatus"),
        limiting_mag=_not_negative(row.get("diffmaglim")),
        programid=_first(row, "programid") or identity["programid"],
    )


def _ztf_total(row: Record, flux: float | None, flux_err: float | None) -> Record:
    """The source of the reference image plus the difference; nothing where it has no source."""
    distance, magnitude, sigma = (
        _not_negative(row.get(name)) for name in ("distnr", "magnr", "sigmagnr")
    )
    if distance is None or distance >= 1.4 or not magnitude or flux is None:
        return {}
    reference = _flux(magnitude)
    total = {"total_flux": reference + flux}
    if sigma is None or flux_err is None:
        return total
    error = math.hypot(reference * sigma * math.log(10) / 2.5, flux_err)
    return total | {"total_flux_err": error}


def _flux(mag: float) -> float:
    return 10 ** ((31.4 - mag) / 2.5)


def _mjd_of_jd(jd: float) -> float:
    return jd - 2400000.5 + TAI_MINUS_UTC


def _processed(row: Record) -> float | None:
    time: datetime | None = row.get("time_processed")  # 8.0 only
    if time is not None:
        return time.timestamp() / 86400 + 40587 + TAI_MINUS_UTC
    processed: float | None = _first(row, "timeProcessedMjdTai")
    return processed


def _first(row: Record, *names: str) -> Any:
    return next((_finite(row[name]) for name in names if name in row), None)


def _not_negative(value: float | None) -> float | None:
    value = _finite(value)
    return None if value is None or value < 0 else value


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
