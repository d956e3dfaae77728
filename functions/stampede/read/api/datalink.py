"""Links of alerts and objects for TOPCAT, pyvo and other such clients: the IVOA's DataLink 1.1."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby
from urllib.parse import parse_qsl, quote

from starlette.requests import Request
from starlette.responses import Response

from stampede.alerts.columns import KINDS
from stampede.errors import NotFound, StampedeError, TooLarge
from stampede.lookup import response_warnings
from stampede.lookup.errors import BadParameter
from stampede.lookup.lookup import Lookup
from stampede.lookup.object_alerts import stored_alerts
from stampede.lookup.packs.locations import CutoutLocation
from stampede.read.formats import votable
from stampede.read.formats.datalink import MEDIA_TYPE, Link, document
from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.read.web.conditional import REVALIDATE

MOST_IDS = 50
"""Ids of one request; the response says that there were more."""
MOST_BYTES = 64 << 10
_FORMATS = ("", "votable", votable.MEDIA_TYPE)
_FAULTS = {400: "UsageFault", 404: "NotFoundFault", 429: "TransientFault", 503: "TransientFault"}

Find = Callable[[Lookup, str, Sequence[str]], Iterator[Link]]
"""Finds the links of ids, each address with this origin."""


async def alert_links(request: Request) -> Response:
    """The links of alerts: packet, images, thumbnail, light curve, page."""
    return await _respond(request, _of_alerts)


async def object_links(request: Request) -> Response:
    """The links of objects: light curve, cutouts, those of the latest alert, page."""
    return await _respond(request, _of_objects)


async def _respond(request: Request, find: Find) -> Response:
    """The links of the ids in the query or in the body; an error is a VOTable too."""
    service = service_of(request)
    origin = service.access.proxies.origin_of(request)
    headers = {"Cache-Control": REVALIDATE}
    try:
        asked = [(name.upper(), value) for name, value in await _parameters(request)]
        for name, value in asked:
            if name == "RESPONSEFORMAT" and value.lower().partition(";")[0] not in _FORMATS:
                raise BadParameter(name, f"RESPONSEFORMAT must be votable: {value[:40]!r}")
        ids = [*dict.fromkeys(value for name, value in asked if name == "ID")]
        work = partial(_document, service.lookup, find, origin, ids)
        if len(ids) < 2:
            body = await service.run(work)
        else:
            with service.bulk_limit.slot(request.state.client):
                body = await service.run_bulk(work)
        return Response(body, 200, headers, MEDIA_TYPE)
    except StampedeError as error:
        if error.status not in _FAULTS:
            raise
        headers = {"Cache-Control": "no-store"}
        body = votable.error_document(f"{_FAULTS[error.status]}: {error.message}")
        return Response(body, error.status, headers, votable.MEDIA_TYPE)


def _document(lookup: Lookup, find: Find, origin: str, ids: Sequence[str]) -> bytes:
    links = [*find(lookup, origin, ids[:MOST_IDS])]
    return document(links, len(ids) > MOST_IDS, response_warnings.incomplete())


async def _parameters(request: Request) -> list[tuple[str, str]]:
    """Those of the query, and those of a form in the body."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            raise TooLarge(f"the body has more than {MOST_BYTES:,} bytes")
    form = parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True)
    return [*request.query_params.multi_items(), *form]


def _of_alerts(lookup: Lookup, origin: str, ids: Sequence[str]) -> Iterator[Link]:
    known: dict[str, int] = {}
    faults: dict[str, str] = {}
    for text in ids:
        try:
            known[text] = parameters.alert_id(text)
        except BadParameter as error:
            faults[text] = f"UsageFault: {error.message}"
    numbers = sorted(known.values())
    by_alert = sorted(lookup.by_alert(numbers).items())
    found = {number: [*alerts] for number, alerts in groupby(by_alert, lambda one: one[0][0])}
    packets = {(one.alert_id, one.survey) for one in lookup.kept_packets(numbers)}
    drawn = {(one.alert_id, one.survey) for one in lookup.thumbnail_locations(numbers)}
    for text in ids:
        fault = faults.get(text, f"NotFoundFault: no alert {text} is stored")
        alerts = found.get(known.get(text, 0), ())
        if not alerts:
            yield Link(text, error_message=fault)
        for key, locations in alerts:
            yield from _of_alert(text, origin, locations, key in packets, key in drawn)


def _of_alert(
    text: str, origin: str, locations: Sequence[CutoutLocation], has_packet: bool, drawn: bool
) -> Iterator[Link]:
    alert = locations[0]
    url, survey = f"{origin}/v1/alerts/{alert.alert_id}", f"survey={alert.survey}"
    if has_packet:
        packet = f"{url}/packet?format=ocf&{survey}"
        yield Link(text, "#this", packet, "packet, an Avro container", "application/avro")
    yield from _images(text, origin, locations)
    if drawn:
        thumbnail, about = f"{url}/thumbnail?{survey}", "the cutouts side by side"
        yield Link(text, "#preview-image", thumbnail, about, "image/png", "#image", "thumbnail")
    yield _light_curve(text, "#coderived", origin, alert.object_id)
    page = f"{origin}/alerts/{alert.alert_id}?{survey}"
    yield Link(text, "#documentation", page, "page of the alert", "text/html")


def _images(
    text: str, origin: str, locations: Sequence[CutoutLocation], whose: str = ""
) -> Iterator[Link]:
    """The images of an alert; `whose` ends their descriptions."""
    sent = {one.kind: one for one in locations if one.pack}
    for kind in (kind for kind in KINDS if kind in sent):
        one = sent[kind]
        url = f"{origin}/v1/alerts/{one.alert_id}/cutouts/{kind}?survey={one.survey}"
        about = f"{kind} image{whose}"
        yield Link(text, "#progenitor", url, about, "application/fits", "#image", kind)
    if sent:
        one = next(iter(sent.values()))
        url = f"{origin}/v1/alerts/{one.alert_id}/packet?format=fits&survey={one.survey}"
        about = f"all images{whose} in one FITS file"
        yield Link(text, "#package", url, about, "application/fits", "#image", "images")


def _light_curve(text: str, semantics: str, origin: str, object_id: str) -> Link:
    url = f"{origin}/v1/objects/{quote(object_id, safe='')}/lightcurve?format=votable"
    about = f"light curve of object {object_id}"
    kind = votable.MEDIA_TYPE
    return Link(text, semantics, url, about, kind, "#timeseries", "lightcurve")


def _of_objects(lookup: Lookup, origin: str, ids: Sequence[str]) -> Iterator[Link]:
    for text in ids:
        try:
            object_id = parameters.object_id(text)
            rows = lookup.light_curves.of_object(object_id)
        except (BadParameter, NotFound) as error:
            yield Link(text, error_message=f"{_FAULTS[error.status]}: {error.message}")
            continue
        yield _light_curve(text, "#this", origin, object_id)
        alerts = stored_alerts(lookup, object_id, rows)
        name = quote(object_id, safe="")
        if alerts:
            whose = f" of the latest alert, {alerts[0][0].alert_id}"
            yield from _images(text, origin, alerts[0], whose)
            url = f"{origin}/v1/objects/{name}/cutouts?format=tar"
            about = "all cutouts of all alerts, FITS in a tar file"
            yield Link(text, "#package", url, about, "application/x-tar", "#image", "cutouts")
        page, about = f"{origin}/objects/{name}", "page of the object"
        yield Link(text, "#documentation", page, about, "text/html")
