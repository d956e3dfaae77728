"""Points of light curves out of the measurements of an archive."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from xxhash import xxh64_intdigest

from stampede.alerts import surveys
from stampede.alerts.arrays import table_of
from stampede.alerts.bounds import OBJECT_ID, Times
from stampede.alerts.columns import DETECTION
from stampede.archives.layouts import Layout, Part
from stampede.archives.measurements import Fault
from stampede.archives.time_scales import tai
from stampede.runtime import lazy_arrow_compute as pc

MOST_FAULTS = 20
"""Faults that are told of a batch."""
MAGS = -30.0, 40.0
"""A magnitude beyond is none: the Sun has -26.7, and files write 99 or -999 for no value."""
MOST_MAG_ERROR = 10.0
DIGEST_BITS = 20
_MAGS_PER_RATIO = 2.5 / np.log(10)
_INT32 = np.iinfo(np.int32)


class Points(NamedTuple):
    """Points out of measurements.

    Attributes
    ----------
    rows
        Rows of `DETECTION`.
    unmeasured
        How many measurements have no value: null, NaN or infinite.
    refused
        How many have a fault.
    faults
        At most `MOST_FAULTS` of these.
    """

    rows: pa.Table
    unmeasured: int
    refused: int
    faults: list[Fault]


def points_of(measured: pa.Table, layout: Layout, archive: str, times: Times) -> Points:
    """The points in rows of `MEASURED`: detections of the survey `archive`.

    A magnitude, or a flux of the object in all, is a `total_flux`; then `flux`, that of a
    difference image, is null.
    """
    there = np.isfinite(_numbers(measured, "value"))
    rows = measured.filter(pa.array(there))
    mjd = tai(_numbers(rows, Part.TIME) - layout.epoch, layout.scale)
    rows = rows.append_column("mjd", pa.array(mjd))
    index = rows.schema.get_field_index(Part.BAND)
    rows = rows.set_column(index, Part.BAND, _bands(rows[Part.BAND], layout))
    checks = _Checks(rows)
    _check_measured(checks, layout)
    _check_identity(checks, times)
    good = rows.filter(pa.array(~checks.bad))
    unmeasured = len(there) - rows.num_rows
    return Points(_points(good, layout, archive), unmeasured, int(checks.bad.sum()), checks.faults)


def source_ids(points: pa.Table) -> pa.Array:
    """Ids of points of an archive that has none: of equal rows the same, int64.

    The time in milliseconds (MJD TAI), 43 bits up to the year 2137, then `DIGEST_BITS` of a digest
    of all that the row says. So the ids of an object are in order of time, and two measurements at
    one time stay two points. A file that is imported again gives the same ids.

    Parameters
    ----------
    points
        Rows of `DETECTION` without `source_id`.
    """
    numbers = ("mjd", "ra", "dec", "flux", "flux_err", "total_flux", "total_flux_err", "detector")
    record = np.zeros(points.num_rows, [(name, "<f8") for name in numbers])
    for name in numbers:
        record[name] = _numbers(points, name) + 0.0  # makes 0 of -0
    data, width = record.tobytes(), record.itemsize
    texts = zip(*(points[name].to_pylist() for name in ("band", "procstatus")), strict=True)
    digests = np.fromiter(
        (
            xxh64_intdigest(data[at * width : (at + 1) * width] + repr(text).encode())
            for at, text in enumerate(texts)
        ),
        np.uint64,
        points.num_rows,
    )
    milliseconds = np.rint(record["mjd"] * 86_400_000).astype(np.int64)
    low = (digests & np.uint64((1 << DIGEST_BITS) - 1)).astype(np.int64)
    return pa.array((milliseconds << DIGEST_BITS) | low)


def _points(rows: pa.Table, layout: Layout, archive: str) -> pa.Table:
    """Rows without a fault as `DETECTION`."""
    value, error = _numbers(rows, "value"), _numbers(rows, Part.ERROR)
    if layout.measure is Part.MAG:
        flux = 10 ** ((31.4 - value) / 2.5)
        error = error / _MAGS_PER_RATIO * flux
    else:
        flux, error = value * layout.nanojansky, error * layout.nanojansky
    name = "flux" if layout.measure is Part.DIFFERENCE else "total_flux"
    columns: dict[str, Any] = {
        "object_id": rows[Part.OBJECT_ID],
        "survey": archive,
        **{"forced": False, "limit": False, "withdrawn": False, "source_id": 0},
        **{each: rows[each] for each in ("mjd", "band", "ra", "dec", "detector")},
        name: pa.array(flux.astype(np.float32)),
        f"{name}_err": pa.array(error.astype(np.float32), from_pandas=True),
        "processed_mjd": rows["mjd"],
        "procstatus": rows[Part.QUALITY],
    }
    points = table_of(DETECTION, columns, rows.num_rows)
    given = rows[Part.SOURCE_ID]
    ids = source_ids(points) if given.null_count else given
    ids = pc.coalesce(given, ids) if given.null_count else given
    return points.set_column(
        points.schema.get_field_index("source_id"), DETECTION.field("source_id"), ids
    )


def _check_identity(checks: "_Checks", times: Times) -> None:
    rows = checks.rows
    names = rows[Part.OBJECT_ID].combine_chunks().dictionary_encode()
    fit = [name is not None and OBJECT_ID.fullmatch(name) for name in names.dictionary.to_pylist()]
    is_id = pc.fill_null(pa.array(map(bool, fit), pa.bool_()).take(names.indices), False)
    checks.refuse(~is_id.to_numpy(False), Part.OBJECT_ID, "not 1 to 64 letters, digits and _ . + -")
    checks.refuse_outside("mjd", times.earliest, times.latest, f"not {times} (TAI)")
    checks.refuse_outside(Part.RA, 0.0, 360.0, "not from 0 to 360 degrees")
    checks.refuse_outside(Part.DEC, -90.0, 90.0, "not from -90 to 90 degrees")
    known = [*surveys.bands()]
    is_band = pc.or_(pc.is_in(rows[Part.BAND], pa.array(known)), rows[Part.BAND].is_null())
    why = f"none of {' '.join(known)}: say which it is with --band NAME=BAND"
    checks.refuse(~is_band.to_numpy(), Part.BAND, why)
    for name, least, most in (
        (Part.SOURCE_ID, 1, 1 << 63),
        (Part.DETECTOR, _INT32.min, _INT32.max),
    ):
        column = _numbers(rows, name)
        checks.refuse((column < least) | (column > most), name, f"not from {least} to {most}")


def _check_measured(checks: "_Checks", layout: Layout) -> None:
    error = _numbers(checks.rows, Part.ERROR)
    if layout.measure is Part.MAG:
        checks.refuse_outside("value", *MAGS, "no magnitude")
        checks.refuse((error < 0) | (error > MOST_MAG_ERROR), Part.ERROR, "no error of a magnitude")
    else:
        most = float(np.finfo(np.float32).max) / layout.nanojansky
        checks.refuse_outside("value", -most, most, "too large for a flux")
        checks.refuse((error < 0) | (error > most), Part.ERROR, "no error of a flux")


class _Checks:
    """Which rows are bad, and why.

    Attributes
    ----------
    bad
        Whether each row has a fault, shape (rows,).
    faults
        The first ones.
    """

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows
        self.bad = np.zeros(rows.num_rows, bool)
        self.faults: list[Fault] = []

    def refuse_outside(self, name: str, least: float, most: float, why: str) -> None:
        """Refuse the rows whose number is not in ``[least, most]``, NaN and null too."""
        column = _numbers(self.rows, name)
        self.refuse(~((column >= least) & (column <= most)), name, why)

    def refuse(self, mask: np.ndarray, name: str, why: str) -> None:
        """Refuse the rows of the mask that are not refused yet."""
        new = np.flatnonzero(mask & ~self.bad)
        self.bad[new] = True
        for at in new[: MOST_FAULTS - len(self.faults)].tolist():
            value = self.rows[name][at].as_py()
            row = self.rows["row"][at].as_py()
            shown = "" if name == "value" else f"{name} "
            self.faults.append(Fault(row, f"{shown}{value!r:.60} is {why}"))


def _bands(bands: pa.ChunkedArray, layout: Layout) -> pa.Array:
    """The names of bands here; null stays."""
    found = bands.combine_chunks().dictionary_encode()
    names = [layout.bands.get(name, name) for name in found.dictionary.to_pylist()]
    return pa.array(names, pa.string()).take(found.indices)


def _numbers(rows: pa.Table, name: str) -> np.ndarray:
    """A column as float64, NaN for null."""
    column: np.ndarray = rows[name].cast(pa.float64(), safe=False).to_numpy()
    return column
