"""The points and objects of a store as others count them: their magnitudes, times and numbers."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pydantic_core
from starlette.responses import Response

from stampede.alerts import surveys
from stampede.lookup.cone_search import Cone, nearest_first
from stampede.lookup.errors import BadParameter, UnknownObject
from stampede.lookup.light_curves import count_detections, leave_uncounted
from stampede.lookup.lookup import Lookup
from stampede.lookup.points import PointFilter, measured
from stampede.read.formats.light_curves import shortest
from stampede.read.web.conditional import REVALIDATE
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.timescale import TAI_MINUS_UTC

ZTF_FILTERS = {"g": 1, "r": 2, "i": 3}
"""ZTF's numbers of its bands, its `fid`."""
MOST_OBJECTS = 2_000
"""Most objects of a cone that are put in order."""
JD_OF_MJD = 2400000.5

Names = Mapping[str, str]
"""By the name that others use, the name of a column here."""


def points_of(lookup: Lookup, survey: str, object_id: str) -> pa.Table:
    """The points of one object of a survey, by time, without those that it has withdrawn.

    Raises `UnknownObject`.
    """
    rows = PointFilter().apply(lookup.light_curves.of_object(object_id))
    rows = rows.filter(pc.equal(rows["survey"], survey))
    if not rows.num_rows:
        raise UnknownObject(f"no detection of {survey} of object {object_id} is stored")
    return rows


def of_alerts(rows: pa.Table) -> pa.Table:
    """The rows of surveys that send alerts: what others serve, and not archives."""
    return rows.filter(pc.is_in(rows["survey"], pa.array(surveys.names())))


def extended(rows: pa.Table) -> pa.Table:
    """Rows of `DETECTION` with more columns, in the units of ZTF's alerts.

    They are `mag` and `mag_err` of the absolute flux (AB; null if that is 0), `sign` of the flux
    (1 or -1) and `letter` (t or f) for it, `fid`, `mjd_utc` and `jd_utc`, and `drb`: the score of
    the newer classifier alone.
    """
    flux = rows["flux"].to_numpy().astype(np.float64)
    error = rows["flux_err"].to_numpy().astype(np.float64)
    size = np.where(flux == 0, np.nan, np.abs(flux))
    utc = rows["mjd"].to_numpy() - TAI_MINUS_UTC
    score, older = rows["reliability"].to_numpy(), rows["rb"].to_numpy()
    fid = [ZTF_FILTERS.get(band) for band in rows["band"].to_pylist()]
    more = {
        "mag": _floats(np.round(31.4 - 2.5 * np.log10(size), 6)),
        "mag_err": _floats(np.round(1.0857362 * error / size, 8)),
        "sign": pa.array(np.where(flux < 0, -1, 1), pa.int32(), mask=np.isnan(flux)),
        "letter": pa.array(np.where(flux < 0, "f", "t"), pa.string(), mask=np.isnan(flux)),
        "fid": pa.array(fid, pa.int32()),
        "mjd_utc": _floats(utc),
        "jd_utc": _floats(utc + JD_OF_MJD),
        "drb": pa.array(np.where(score == older, np.nan, score), pa.float32(), from_pandas=True),
    }
    for name, column in more.items():
        rows = rows.append_column(name, column)
    return rows


def named(rows: pa.Table, names: Names) -> pa.Table:
    """The columns that others know, under their names."""
    return rows.select([*names.values()]).rename_columns([*names])


def records(table: pa.Table) -> list[dict[str, Any]]:
    """Each row as a dict; a float32 has its few digits, NaN is null."""
    for number, field in enumerate(table.schema):
        if pa.types.is_float32(field.type):
            values = shortest(table[number].to_numpy())
            table = table.set_column(number, field.name, _floats(values))
        elif pa.types.is_floating(field.type):
            table = table.set_column(number, field.name, _floats(table[number].to_numpy()))
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def json_response(answer: Any) -> Response:
    """An answer as JSON; numbers that are not finite are null."""
    body = pydantic_core.to_json(answer, inf_nan_mode="null")
    return Response(body, headers={"Cache-Control": REVALIDATE}, media_type="application/json")


def summary(object_id: str, rows: pa.Table) -> dict[str, Any]:
    """An object from its points: what `cone_search.FOUND` has of it, but its distance.

    Its position is the mean of its detections; it is null, as the times are, if it has none.
    """
    seen = measured(rows)
    found = {"object_id": object_id, "survey": rows["survey"][0].as_py()}
    if not seen.num_rows:
        return found | dict.fromkeys(("ra", "dec", "first_mjd", "last_mjd")) | {"detections": 0}
    mjd, ra, dec = (seen[name].to_numpy() for name in ("mjd", "ra", "dec"))
    east = (ra - ra[0] + 180) % 360 - 180
    return found | {
        "ra": float((ra[0] + np.nanmean(east)) % 360),
        "dec": float(np.nanmean(dec)),
        "detections": seen.num_rows,
        "first_mjd": float(mjd.min()),
        "last_mjd": float(mjd.max()),
    }


def around(
    lookup: Lookup, survey: str | None, cone: Cone, counted: bool = True
) -> list[dict[str, Any]]:
    """The objects of a survey, or of all that send alerts, in a cone: the nearest first.

    They are rows of `cone_search.FOUND`. Their light curves are read to count their
    detections, unless not `counted`. Raises `BadParameter` if they are more than `MOST_OBJECTS`.
    """
    found = [*islice(_around(lookup, survey, cone, counted), MOST_OBJECTS + 1)]
    if len(found) > MOST_OBJECTS:
        raise BadParameter(
            "radius", f"has more than {MOST_OBJECTS:,} objects: choose a smaller one"
        )
    return found


def _around(
    lookup: Lookup, survey: str | None, cone: Cone, counted: bool
) -> Iterator[dict[str, Any]]:
    tables = (
        of_alerts(table) if survey is None else table.filter(pc.equal(table["survey"], survey))
        for table in nearest_first(lookup.positions, cone)
    )
    few = (table[: MOST_OBJECTS + 1] for table in tables)
    found = count_detections(few, lookup.light_curves) if counted else leave_uncounted(few)
    for table in found:
        yield from table.to_pylist()


def translated(rows: Sequence[Mapping[str, Any]], names: Names) -> list[dict[str, Any]]:
    """Of dicts the values that others know, under their names."""
    return [{theirs: row[ours] for theirs, ours in names.items()} for row in rows]


def _floats(values: np.ndarray) -> pa.Array:
    return pa.array(values.astype(np.float64), pa.float64(), from_pandas=True)
