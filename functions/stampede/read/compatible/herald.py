"""The routes of Herald, Rubin's own service of alerts, which DataLink clients such as pyvo follow.

Parameters and answers are those of https://github.com/lsst-sqre/herald 0.3, below its path
``/api/alerts``: of alerts of Rubin alone.
"""

import base64
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from stampede.images import fits
from stampede.images.joined_file import joined
from stampede.lookup.errors import BadParameter
from stampede.lookup.lookup import Lookup
from stampede.lookup.packs.locations import no_such_cutout
from stampede.read.compatible import measurements
from stampede.read.compatible.questions import get, parameters_of, wanted
from stampede.read.errors import NotHeld
from stampede.read.formats import datalink
from stampede.read.formats.votable import VOTableWriter
from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.read.web.conditional import IMMUTABLE, REVALIDATE

if TYPE_CHECKING:
    from stampede.alerts.framing import WriterSchema
    from stampede.lookup.stored_records import Plan

SURVEY = "lsst"
IMAGES = {"difference": "DIFFIM", "science": "SCIENCE", "template": "TEMPLATE"}
"""Names of the extensions of its file of cutouts, in order."""
JSON = ("json", "application/json")
FITS = ("fits", "application/fits")
OCF = "application/x-avro-ocf"
DATALINK = "application/x-votable+xml"
# DataLink 1.1, section 3.2, without the two columns that it leaves to the server.
_OWN = {"content_qualifier", "local_semantics"}
UCDS = {name: ucd for name, ucd in datalink.UCDS.items() if name not in _OWN}
LINKS = (
    ("", "Alert packet (Avro OCF)", "#this", OCF),
    ("/cutouts", "Cutout images (FITS)", "#cutout", "application/fits"),
    ("/schema", "Avro schema (JSON)", "#detached-header", "application/json"),
)
"""What `links` names: the end of its address, a description, DataLink's word and the type."""
_ID = re.compile(r"(?:LSST-AP-DS-)?([0-9]{1,19})")


async def get_alert(request: Request) -> Response:
    """The packet as an Avro object container, or as JSON with images in base64."""
    asked = await parameters_of(request, ("ID", "RESPONSEFORMAT"))
    alert_id = _alert_id(*wanted(asked, "ID"))
    format = asked.get("RESPONSEFORMAT", "")
    if format in FITS:
        raise NotHeld(
            "Stampede makes no FITS tables of a packet: leave RESPONSEFORMAT out, or json"
        )
    parameters.one_of(format, "RESPONSEFORMAT", ("", *JSON))
    service = service_of(request)
    if format:
        record = await service.run(_record, service.lookup, alert_id)
        return measurements.json_response(record)
    body = await service.run(_container, service.lookup, alert_id)
    return _file(body, f"alert-{alert_id}.avro", OCF)


async def get_cutouts(request: Request) -> Response:
    """The first image of each cutout, as extensions of one FITS file."""
    asked = await parameters_of(request, ("ID",))
    alert_id = _alert_id(*wanted(asked, "ID"))
    service = service_of(request)
    body = await service.run(_images, service.lookup, alert_id)
    return _file(body, f"cutouts-{alert_id}.fits", "application/fits")


async def get_schema(request: Request) -> Response:
    """The Avro schema that the alert was written with."""
    asked = await parameters_of(request, ("ID",))
    alert_id = _alert_id(*wanted(asked, "ID"))
    service = service_of(request)
    body = await service.run(_schema, service.lookup, alert_id)
    return Response(body, headers={"Cache-Control": REVALIDATE}, media_type="application/json")


async def get_links(request: Request) -> Response:
    """What there is of an alert, by DataLink 1.1. Raises `UnknownAlert`, unlike Herald."""
    asked = await parameters_of(request, ("ID",))
    alert_id = _alert_id(*wanted(asked, "ID"))
    service = service_of(request)
    await service.run(service.lookup.alert, alert_id, SURVEY)
    base = f"{service.access.proxies.origin_of(request)}{request.scope['root_path']}/herald"
    rows = [
        (str(alert_id), f"{base}{end}?ID={alert_id}", "", "", text, word, kind, None)
        for end, text, word, kind in LINKS
    ]
    columns = [pa.array(values, pa.string()) for values in list(zip(*rows, strict=True))[:-1]]
    table = pa.table([*columns, pa.nulls(len(rows), pa.int64())], names=[*UCDS])
    writer = VOTableWriter("links", table.schema, UCDS, text="char")
    body = writer.add(table) + writer.end()
    return Response(body, headers={"Cache-Control": REVALIDATE}, media_type=DATALINK)


def _alert_id(text: str) -> int:
    """A diaSourceId, alone or in the IAU's form. Raises `BadParameter`."""
    if not (found := _ID.fullmatch(text)):
        raise BadParameter("ID", f"must be such as LSST-AP-DS-170239611403501616: {text[:40]!r}")
    return parameters.alert_id(found[1], "ID")


def _file(body: bytes, name: str, media_type: str) -> Response:
    headers = {
        "Content-Disposition": f'attachment; filename="{name}"',
        "Cache-Control": IMMUTABLE,
    }
    return Response(body, headers=headers, media_type=media_type)


def _message(lookup: Lookup, alert_id: int) -> bytes:
    return lookup.message(lookup.packet(alert_id, SURVEY))


def _container(lookup: Lookup, alert_id: int) -> bytes:
    return lookup.records.contained(_message(lookup, alert_id))


def _schema(lookup: Lookup, alert_id: int) -> bytes:
    message = lookup.packets.without_images(lookup.packet(alert_id, SURVEY))
    return lookup.records.schema_text(message)


def _record(lookup: Lookup, alert_id: int) -> Any:
    return lookup.records.read(_message(lookup, alert_id), _plan)


def _plan(schema: "WriterSchema", names: frozenset[str]) -> "Plan[Any]":
    """How to read a whole record. Its integers stay numbers, as Herald has them."""
    from stampede.lookup.stored_records import Plan  # few requests need fastavro

    return Plan(schema.parsed, None, True, _as_json)


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {name: _as_json(each) for name, each in value.items()}
    return [_as_json(each) for each in value] if isinstance(value, list) else value


def _images(lookup: Lookup, alert_id: int) -> bytes:
    """One file with the first image of each cutout that the survey sent."""
    sent = {one.kind: one for one in lookup.alert(alert_id, SURVEY) if one.pack}
    if not sent:
        raise no_such_cutout(alert_id, "science")
    kinds = [kind for kind in IMAGES if kind in sent]
    return joined({IMAGES[kind]: fits.trim(lookup.images.fits(sent[kind])) for kind in kinds}, {})


ROUTES = [
    get("/herald", "cutouts", get_alert),
    get("/herald/cutouts", "cutouts", get_cutouts),
    get("/herald/schema", "cutouts", get_schema),
    get("/herald/links", "cutouts", get_links),
]
