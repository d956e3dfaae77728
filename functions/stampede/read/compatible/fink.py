"""Fink's routes of tables, for ZTF and for Rubin: `objects`, `sources`, `fp` and `conesearch`."""

from collections.abc import Sequence
from datetime import UTC, datetime
from math import isfinite

import numpy as np
import pyarrow as pa
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from stampede.errors import NotFound
from stampede.lookup import response_warnings, sky
from stampede.lookup.cone_search import Cone
from stampede.lookup.errors import BadParameter
from stampede.lookup.lookup import Lookup
from stampede.lookup.points import PointFilter, PointKind, kinds_of, measured
from stampede.read.compatible import measurements, tables
from stampede.read.compatible.fink_names import (
    ABSENT,
    DISTANCE,
    LSST,
    OBJECT,
    SURVEYS,
    TAG,
    ZTF,
    Fink,
)
from stampede.read.compatible.questions import absent, both, flag, parameters_of, run, wanted
from stampede.read.errors import NotHeld
from stampede.read.web import parameters
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.timescale import TAI_MINUS_UTC

WHO = "Fink (https://fink-broker.org)"
MOST_IDS = 100
MOST_FOUND = 1000
"""Objects of a cone: at most, and if the parameter `n` is absent."""
AT_ONCE = 50
"""Light curves of a cone that are in memory at once."""
WIDEST = 18_000.0  # arcsec
TABLE = ("columns", "output-format")
TIMES = ("startdate", "stopdate", "window")
TAGS = {PointKind.DETECTION: "valid", PointKind.LIMIT: "upperlim"}
_UNIX = 40587.0  # MJD of 1970-01-01
_JD = 2_400_000.0


def fink_of(request: Request) -> Fink:
    """How Fink writes the survey in the path. Raises `NotFound`."""
    if (name := request.path_params["survey"]) in SURVEYS:
        return SURVEYS[name]
    raise NotFound(f"Fink has the surveys {', '.join(SURVEYS)}, not {name[:40]!r}")


async def get_objects(request: Request) -> Response:
    """Of ZTF all detections of these objects, of Rubin one row for each object."""
    fink = fink_of(request)
    own = ("withupperlim", "withcutouts", "cutout-kind") if fink is ZTF else ()
    asked = await parameters_of(request, (fink.object_id, *own, *TABLE))
    if flag(asked, "withcutouts"):
        raise NotHeld("withcutouts: ask /api/v1/cutouts for the images of each alert")
    if fink is ZTF:
        limits = [PointKind.LIMIT] * flag(asked, "withupperlim")
        return await _respond_points(request, fink, asked, PointKind.DETECTION, *limits)
    ids = _ids(fink, asked)
    rows = await run(request, len(ids), _summaries, ids)
    return _respond(rows, asked)


async def get_sources(request: Request) -> Response:
    """The detections of these objects of Rubin, or those of one time."""
    asked = await parameters_of(request, (LSST.object_id, "midpointMjdTai", *TABLE))
    return await _respond_points(request, LSST, asked, PointKind.DETECTION)


async def get_forced(request: Request) -> Response:
    """The forced photometry of these objects of Rubin."""
    asked = await parameters_of(request, (LSST.object_id, *TABLE))
    return await _respond_points(request, LSST, asked, PointKind.FORCED)


async def get_cone(request: Request) -> Response:
    """The latest detection of each object around a position, the nearest first."""
    fink = fink_of(request)
    asked = await parameters_of(request, ("ra", "dec", "radius", "n", "kind", *TIMES, *TABLE))
    ra, dec, _ = wanted(asked, "ra", "dec", "radius")
    parameters.one_of(asked.get("kind", "within"), "kind", ("within",))
    radius = parameters.number(asked, "radius", 0, WIDEST) or 0.0
    most = parameters.whole_number(asked, "n", 1, MOST_FOUND) or MOST_FOUND
    cone, times = Cone(sky.place(ra, dec), radius / sky.ARCSEC), _times(fink, asked)
    rows = await run(request, MOST_FOUND, _around, fink, cone, times, most)
    position = [name for name, ours in fink.detections.items() if ours in ("ra", "dec")]
    return _respond(rows, asked, [*position, DISTANCE])


async def _respond_points(
    request: Request, fink: Fink, asked: QueryParams, *kinds: PointKind
) -> Response:
    """The points of these kinds of the objects that the parameters name."""
    ids = _ids(fink, asked)
    rows = await run(request, len(ids), _points, fink, ids, kinds)
    mjd = parameters.number(asked, "midpointMjdTai", 0, 1e6)
    if mjd is not None:
        rows = rows.filter(pa.array(np.abs(rows["r:midpointMjdTai"].to_numpy() - mjd) < 1e-6))
    return _respond(rows, asked)


def _respond(rows: pa.Table, asked: QueryParams, always: Sequence[str] = ()) -> Response:
    rows = tables.chosen(rows, asked.get("columns", "*"), always)
    names = {**ZTF.detections, **LSST.detections, **OBJECT}
    return tables.written(rows, asked.get("output-format", "json"), names)


def _ids(fink: Fink, asked: QueryParams) -> list[str]:
    """The ids in a parameter, parted by commas, each once."""
    (text,) = wanted(asked, fink.object_id)
    found = [*dict.fromkeys(text.replace(" ", "").split(","))]
    if len(found) > MOST_IDS:
        raise BadParameter(fink.object_id, f"names more than {MOST_IDS} objects")
    return [parameters.object_id(each, fink.object_id) for each in found]


def _times(fink: Fink, asked: QueryParams) -> tuple[float, float]:
    """From when until when (MJD TAI) an object must have been seen first."""
    start, stop = (_mjd(asked[name], name) if name in asked else None for name in TIMES[:2])
    window = parameters.number(asked, "window", 0, 1e6)
    if stop is None and window is not None:
        if start is None:
            raise BadParameter("window", "window needs startdate")
        stop = start + window
    scale = TAI_MINUS_UTC if fink is ZTF else 0.0
    first = -np.inf if start is None else start + scale
    return first, np.inf if stop is None else stop + scale


def _mjd(text: str, name: str) -> float:
    """The MJD of a date as Fink takes it: ISO, JD or MJD. Raises `BadParameter`."""
    try:
        days = float(text)
        if not isfinite(days):
            raise ValueError
    except ValueError:
        try:
            date = datetime.fromisoformat(text.strip()).replace(tzinfo=UTC)
        except ValueError:
            example = "2026-06-30 12:30:00, a JD or an MJD"
            raise BadParameter(name, f"must be such as {example}: {text[:40]!r}") from None
        return _UNIX + date.timestamp() / 86400
    return days - measurements.JD_OF_MJD if days > _JD else days


def _summaries(lookup: Lookup, ids: Sequence[str]) -> pa.Table:
    """One row for each of these objects of Rubin."""
    found = []
    for object_id in ids:
        one = measurements.summary(
            object_id, measurements.points_of(lookup, LSST.survey, object_id)
        )
        found.append(one | {"object_number": int(object_id)})
    return measurements.named(pa.Table.from_pylist(found), OBJECT)


def _points(lookup: Lookup, fink: Fink, ids: Sequence[str], kinds: Sequence[PointKind]) -> pa.Table:
    """The points of these kinds, object by object, the latest first, as Fink names them."""
    names = fink.forced if PointKind.FORCED in kinds else fink.detections
    found = []
    for object_id in ids:
        rows = measurements.points_of(lookup, fink.survey, object_id)[::-1]
        of_points = kinds_of(rows)
        rows = rows.filter(pa.array(np.isin(of_points, [kind.value for kind in kinds])))
        named = measurements.named(_numbered(fink, measurements.extended(rows)), names)
        if PointKind.LIMIT in kinds:
            tags = [TAGS[PointKind(kind)] for kind in kinds_of(rows)]
            named = named.append_column(TAG, pa.array(tags, pa.string()))
        found.append(named)
    return pa.concat_tables(found)


def _numbered(fink: Fink, rows: pa.Table) -> pa.Table:
    """Rows of Rubin with the ids of their objects as numbers."""
    if fink is ZTF:
        return rows
    return rows.append_column("object_number", pc.cast(rows["object_id"], pa.int64()))


def _around(
    lookup: Lookup, fink: Fink, cone: Cone, times: tuple[float, float], most: int
) -> pa.Table:
    """The latest detection of each object in a cone that was seen first within these times."""
    timed = np.isfinite(times).any()
    near = measurements.around(lookup, fink.survey, cone, counted=bool(timed))
    if timed:
        near = [one for one in near if times[0] <= (one["first_mjd"] or np.nan) <= times[1]]
    near = near[:most]
    latest = [
        _latest(lookup, fink, [one["object_id"] for one in near[start : start + AT_ONCE]])
        for start in range(0, max(len(near), 1), AT_ONCE)
    ]
    rows = pa.concat_tables(latest)
    away = {one["object_id"]: one["distance"] / sky.ARCSEC for one in near}
    if rows.num_rows < len(near):
        response_warnings.may_lack("objects whose detections are not stored yet")
    distance = np.array([away[each] for each in rows["object_id"].to_pylist()], np.float64)
    rows = _numbered(fink, measurements.extended(rows)).append_column(DISTANCE, [distance])
    names = {**fink.detections, DISTANCE: DISTANCE}
    return measurements.named(rows.take(pa.array(np.argsort(distance, kind="stable"))), names)


def _latest(lookup: Lookup, fink: Fink, ids: Sequence[str]) -> pa.Table:
    """The latest detection of each of these objects."""
    rows = measured(PointFilter().apply(lookup.light_curves.of_objects(ids)))
    rows = rows.filter(pc.equal(rows["survey"], fink.survey))
    names = np.array(rows["object_id"].to_pylist(), str)
    last = np.append(names[1:] != names[:-1], True) if len(names) else np.empty(0, bool)
    return rows.filter(pa.array(last))


_API = "/fink/{survey}/api/v1"
_OF_RUBIN = f"/fink/{LSST.survey}/api/v1"
ROUTES = [
    *both(f"{_API}/objects", "lightcurves", get_objects),
    *both(f"{_OF_RUBIN}/sources", "lightcurves", get_sources),
    *both(f"{_OF_RUBIN}/fp", "lightcurves", get_forced),
    *both(f"{_API}/conesearch", "lightcurves", get_cone),
    *(one for end, what in ABSENT.items() for one in absent(f"{_API}/{end}", what, WHO)),
]
