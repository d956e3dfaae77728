"""Routes of alerts: what is stored of one, and the latest."""

from collections.abc import Sequence
from functools import partial
from math import isfinite
from urllib.parse import quote

import pydantic_core
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from stampede.lookup import response_warnings
from stampede.lookup.lookup import Lookup
from stampede.lookup.packs.locations import CutoutLocation
from stampede.read.api.cutouts import locations
from stampede.read.service import service_of
from stampede.read.summaries.latest_alerts import DEFAULT, MOST, LatestAlert
from stampede.read.web import parameters
from stampede.read.web.conditional import IMMUTABLE, REVALIDATE


async def get_alert(request: Request) -> Response:
    """What is stored of an alert, and its fields as the survey sent them: all, or some."""
    service = service_of(request)
    names = parameters.names(request.query_params, "fields")
    found = await locations(request)
    return await service.run(_respond, service.lookup, found, names)


def _respond(lookup: Lookup, locations: list[CutoutLocation], names: Sequence[str]) -> Response:
    """The response, made in a thread: the fields of an alert may be megabytes."""
    from stampede.lookup.alert_fields import fields_of  # a first cutout needs no fastavro

    read = partial(fields_of, names=names)
    fields = lookup.record(locations[0].alert_id, locations[0].survey, read)
    alert = as_json(locations, fields)
    if why := response_warnings.incomplete():
        alert["incomplete"] = why
    # The fields come a moment later than the cutouts, or go with their retention.
    cache = REVALIDATE if fields is None else IMMUTABLE
    # A fifth of the time of `json`, which writes 1e-05 where this writes 0.00001.
    body = pydantic_core.to_json(alert, inf_nan_mode="null")
    return Response(body, headers={"Cache-Control": cache}, media_type="application/json")


async def get_latest(request: Request) -> Response:
    """The latest alerts, those of the front page: a look at the store, not a list of all."""
    service = service_of(request)
    limit = parameters.number(request.query_params, "limit", 1, MOST)
    found = await service.run_ledger(service.latest.alerts, int(limit or DEFAULT))
    response: dict[str, object] = {"alerts": [_brief(alert) for alert in found]}
    if why := response_warnings.incomplete():
        response["incomplete"] = why
    return JSONResponse(response, headers={"Cache-Control": REVALIDATE})


def _brief(alert: LatestAlert) -> dict[str, object]:
    """An alert in a list: `as_json` has all of it."""
    first = alert.locations[0]
    return {
        "alert_id": str(first.alert_id),
        "survey": first.survey,
        "object_id": first.object_id,
        "mjd": first.mjd if isfinite(first.mjd) else None,
        "band": alert.band,
        "href": f"/v1/alerts/{first.alert_id}",
    }


def as_json(locations: list[CutoutLocation], fields: dict[str, object] | None) -> dict[str, object]:
    """An alert as JSON: its survey, its object, which cutouts it has, and its fields."""
    alert = locations[0]
    url = f"/v1/alerts/{alert.alert_id}"
    cutouts = {
        location.kind: {"bytes": location.length, "href": f"{url}/cutouts/{location.kind}"}
        if location.pack
        else None
        for location in locations
    }
    return {
        "alert_id": str(alert.alert_id),
        "survey": alert.survey,
        "object_id": alert.object_id,
        "mjd": alert.mjd if isfinite(alert.mjd) else None,
        "cutouts": cutouts,
        "thumbnail": f"{url}/thumbnail",
        "lightcurve": f"/v1/objects/{quote(alert.object_id, safe='')}/lightcurve",
        "packet": None if fields is None else f"{url}/packet",
        "schema": None if fields is None else f"{url}/schema",
        "page": f"/objects/{quote(alert.object_id, safe='')}?alert={alert.alert_id}",
        "fields": fields,
    }
