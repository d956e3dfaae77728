"""Fink's route `sso`: what alerts show of bodies of the solar system."""

from collections.abc import Sequence

import pyarrow as pa
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response

from stampede.alerts.moving.designations import MOST
from stampede.lookup.errors import BadParameter, UnknownObject
from stampede.lookup.lookup import Lookup
from stampede.read.compatible import measurements, tables
from stampede.read.compatible.fink import MOST_IDS, TABLE, WHO, fink_of
from stampede.read.compatible.fink_names import OF_BODY, Fink
from stampede.read.compatible.questions import both, flag, parameters_of, run, wanted
from stampede.read.errors import NotHeld
from stampede.read.moving.observations import observations
from stampede.runtime import lazy_arrow_compute as pc

COMPUTED = ("withEphem", "withResiduals")
IMAGES = ("withcutouts", "withCutouts")


async def get_bodies(request: Request) -> Response:
    """The observations of these bodies, body by body, by time."""
    fink = fink_of(request)
    asked = await parameters_of(request, ("n_or_d", *COMPUTED, *IMAGES, "cutout-kind", *TABLE))
    for name in COMPUTED:
        if flag(asked, name):
            raise NotHeld(
                f"{name}: Stampede computes no ephemerides: ask {WHO}. What Rubin sends of them "
                "is in /v1/moving/DESIGNATION"
            )
    if any(flag(asked, name) for name in IMAGES):
        raise NotHeld("withcutouts: ask /api/v1/cutouts for the images of each alert")
    names = _designations(asked)
    rows = await run(request, len(names), _observations, fink, names)
    rows = tables.chosen(rows, asked.get("columns", "*"))
    return tables.written(rows, asked.get("output-format", "json"), OF_BODY[fink.survey])


def _designations(asked: QueryParams) -> list[str]:
    """The designations in a parameter, parted by commas, each once."""
    (text,) = wanted(asked, "n_or_d")
    found = [*dict.fromkeys(each.strip() for each in text.split(","))]
    if len(found) > MOST_IDS:
        raise BadParameter("n_or_d", f"names more than {MOST_IDS} bodies")
    for each in found:
        if not each or len(each) > MOST or not each.isprintable():
            raise BadParameter("n_or_d", f"must be such as 8467 or 2010JO69: {each[:MOST]!r}")
    return found


def _observations(lookup: Lookup, fink: Fink, names: Sequence[str]) -> pa.Table:
    """What alerts of a survey show of these bodies, as Fink names it."""
    found = []
    for name in names:
        rows = observations(lookup, name)
        rows = rows.filter(pc.equal(rows["survey"], fink.survey))
        if not rows.num_rows:
            raise UnknownObject(f"no alert of {fink.survey} of the body {name!r} is stored")
        found.append(rows)
    rows = pa.concat_tables(found)
    compact = pc.replace_substring(rows["designation"], " ", "")
    rows = rows.append_column("compact", compact)
    rows = rows.append_column("rb", pa.nulls(rows.num_rows, pa.float32()))
    return measurements.named(measurements.extended(rows), OF_BODY[fink.survey])


ROUTES = both("/fink/{survey}/api/v1/sso", "lightcurves", get_bodies)
