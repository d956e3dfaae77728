"""Routes of an alert's packet: the message as the survey sent it, in other formats, its schema."""

from collections.abc import Sequence
from enum import StrEnum

import pydantic_core
from starlette.requests import Request
from starlette.responses import Response

from stampede.images.joined_file import joined
from stampede.lookup.errors import NoSuchCutout
from stampede.lookup.lookup import Lookup
from stampede.lookup.packs.images import Absent
from stampede.lookup.packs.locations import CutoutLocation
from stampede.lookup.packs.packet_reader import PacketLocation
from stampede.read.api.cutouts import locations
from stampede.read.service import service_of
from stampede.read.web import parameters
from stampede.read.web.conditional import REVALIDATE, Representation, etag


class PacketFormat(StrEnum):
    """The formats of a packet."""

    AVRO = "avro"
    OCF = "ocf"
    JSON = "json"
    FITS = "fits"


MEDIA_TYPES = {
    PacketFormat.AVRO: "application/avro",
    PacketFormat.OCF: "application/avro",
    PacketFormat.JSON: "application/json",
    PacketFormat.FITS: "application/fits",
}
_EXTENSIONS = {PacketFormat.OCF: "avro"}


async def get_packet(request: Request) -> Response:
    """The message that the survey sent, byte for byte; or as a container, JSON, its images.

    Without the history rows of observing programmes that are not stored: then headers say how many
    were cut out, and the SHA-256 of the message before that.
    """
    format = parameters.choice(request.query_params, "format", PacketFormat, PacketFormat.AVRO)
    if format == PacketFormat.FITS:
        return await _get_images(request)
    service = service_of(request)
    location = await _location(request)
    headers = _name(location.alert_id, format)
    if location.rows_cut:
        headers["Stampede-Rows-Cut"] = str(location.rows_cut)
        headers["Stampede-Message-SHA256"] = location.sent_sha256 or ""
    which = () if format == PacketFormat.AVRO else (format,)
    tag = etag(location.pack, location.offset, location.row, *which)
    packet = Representation(tag, MEDIA_TYPES[format], headers)
    if not_modified := packet.not_modified(request):
        return not_modified
    return packet.respond(request, await service.run(_written, service.lookup, location, format))


async def get_schema(request: Request) -> Response:
    """The Avro schema that the alert was written with, as JSON."""
    service = service_of(request)
    location = await _location(request)
    text = await service.run(_schema, service.lookup, location)
    # A registry may describe a schema later that the built-in one does not describe.
    schema = Representation(etag(text), "application/json", {}, REVALIDATE)
    return schema.not_modified(request) or schema.respond(request, text)


async def _location(request: Request) -> PacketLocation:
    service = service_of(request)
    alert_id = parameters.alert_id(request.path_params["alert_id"])
    survey = parameters.survey(request.query_params)
    return await service.run(service.lookup.packet, alert_id, survey)


def _name(alert_id: int, format: PacketFormat) -> dict[str, str]:
    file = f"{alert_id}.{_EXTENSIONS.get(format, format)}"
    return {"Content-Disposition": f'attachment; filename="{file}"'}


def _written(lookup: Lookup, location: PacketLocation, format: PacketFormat) -> bytes:
    message = lookup.message(location)
    if format == PacketFormat.OCF:
        return lookup.records.contained(message)
    if format == PacketFormat.JSON:
        from stampede.lookup.alert_fields import record_of  # a first cutout needs no fastavro

        return pydantic_core.to_json(record_of(lookup.records, message), inf_nan_mode="null")
    return message


def _schema(lookup: Lookup, location: PacketLocation) -> bytes:
    return lookup.records.schema_text(lookup.packets.without_images(location))


async def _get_images(request: Request) -> Response:
    """All images of an alert in one FITS file."""
    service = service_of(request)
    found = await locations(request)
    sent = [location for location in found if location.pack]
    if not sent:
        raise NoSuchCutout(f"the survey sent no images with alert {found[0].alert_id}")
    places = [(one.pack, one.page_offset, one.start) for one in sent]
    headers = _name(sent[0].alert_id, PacketFormat.FITS)
    media_type = MEDIA_TYPES[PacketFormat.FITS]
    file = Representation(etag(PacketFormat.FITS, places), media_type, headers)
    if not_modified := file.not_modified(request):
        return not_modified
    return file.respond(request, await service.run(_joined, service.lookup, sent))


def _joined(lookup: Lookup, sent: Sequence[CutoutLocation]) -> bytes:
    files = dict(lookup.images.many(sent))
    alert = sent[0]
    texts = {
        "OBJECT": alert.object_id,
        "ALERTID": str(alert.alert_id),
        "SURVEY": alert.survey,
    }
    return joined({one.kind.upper(): _file(lookup, one, files[one]) for one in sent}, texts)


def _file(lookup: Lookup, location: CutoutLocation, file: bytes | Absent) -> bytes:
    """A file that was read. Raises why it was not."""
    return lookup.images.fits(location) if isinstance(file, Absent) else file
