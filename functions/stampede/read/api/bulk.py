"""Routes of large queries: many ids in, one stream out."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from stampede.alerts.columns import DETECTION
from stampede.errors import StampedeError, TooLarge
from stampede.lookup.as_of import TOLD, told_until, told_with
from stampede.lookup.errors import BadParameter
from stampede.lookup.refreshing_table import RefreshingTable
from stampede.read.api import streams
from stampede.read.api.lightcurves import MJD, point_filter
from stampede.read.formats.completeness import Ids
from stampede.read.formats.light_curves import MAGNITUDES, with_magnitudes
from stampede.read.formats.writers import (
    CUTOUT_ROWS,
    ArrowWriter,
    CsvWriter,
    ParquetWriter,
    TarWriter,
    Writer,
)
from stampede.read.service import service_of
from stampede.read.web import id_list, parameters
from stampede.telemetry.logs import get_logger

log = get_logger()

Writers = dict[str, Callable[[], Writer]]
Parse = Callable[[bytearray, int], Ids]
"""Reads the ids in a body, of which it may have so many."""

CUTOUT_WRITERS: Writers = {"tar": TarWriter, "arrow": partial(ArrowWriter, CUTOUT_ROWS)}


def light_curve_writers(schema: pa.Schema) -> Writers:
    """The formats of many light curves with these columns."""
    return {
        "arrow": partial(ArrowWriter, schema),
        "parquet": partial(ParquetWriter, schema),
        "csv": partial(CsvWriter, schema),
    }


LIGHT_CURVE_WRITERS = light_curve_writers(DETECTION)
WITH_ALERT = "alert"
"""The value of `asof` that makes the ids those of alerts."""


async def post_cutouts(request: Request) -> Response:
    """All cutouts of the alerts in the body."""
    lookup = service_of(request).bulk_lookup
    read = partial(streams.read_cutouts, lookup)
    return await stream_of(request, id_list.alert_ids, [lookup.cutouts], read, CUTOUT_WRITERS)


async def post_light_curves(request: Request) -> Response:
    """The light curves of the objects in the body: all points, or those known at a time.

    With ``asof=alert`` the ids are of alerts: the points that were known with each.
    """
    lookup = service_of(request).bulk_lookup
    wanted = point_filter(request)
    asof = request.query_params.get("asof")
    parse: Parse = id_list.object_ids
    tables, schema = [lookup.detections], DETECTION
    read: streams.Read[Any] = partial(streams.read_light_curves, lookup, wanted)
    if asof == WITH_ALERT:
        parse, tables = id_list.alert_ids, []
        read = partial(streams.read_told, partial(told_with, lookup), wanted)
    elif asof is not None:
        read = partial(streams.read_told, partial(told_until, lookup, _mjd(request)), wanted)
    if asof is not None:
        tables, schema = [*tables, lookup.packet_locations, lookup.cutouts], TOLD
    if parameters.flag(request.query_params, "magnitudes"):
        read, schema = partial(_with_magnitudes, read), pa.schema([*schema, *MAGNITUDES])
    return await stream_of(request, parse, tables, read, light_curve_writers(schema))


def _mjd(request: Request) -> float:
    """The time in the parameter `asof`. Raises `BadParameter`."""
    text = request.query_params["asof"]
    try:
        return parameters.number(request.query_params, "asof", *MJD) or 0.0
    except BadParameter:
        raise BadParameter(
            "asof", f"must be an MJD, or {WITH_ALERT!r} if the ids are of alerts: {text[:40]!r}"
        ) from None


def _with_magnitudes(read: streams.Read[pa.Table], ids: Sequence[Any]) -> streams.Chunk[pa.Table]:
    chunk = read(ids)
    return chunk._replace(found=with_magnitudes(chunk.found))


async def stream_of(
    request: Request,
    parse: Parse,
    tables: Sequence[RefreshingTable],
    read: streams.Read[Any],
    writers: Writers,
) -> Response:
    """The stream of what `read` finds for the ids in the body, which `parse` reads.

    Raises `BadParameter`, `TooLarge`, `TooManyQueries`, `Overloaded`, `StoreDown`.
    """
    service = service_of(request)
    writer = wanted_writer(request, writers)
    service.bulk_limit.check(request.state.client)
    with ExitStack() as held:
        ids = await _ids(request, parse, held)
        # Only now: a client that sends its ids slowly, or never, keeps no other from a slot.
        return await stream_of_ids(request, ids, tables, read, writer, held)


def wanted_writer(request: Request, writers: Writers) -> Writer:
    """A writer of the format that the request wants. Raises `BadParameter`."""
    media_types = {name: writer().media_type for name, writer in writers.items()}
    return writers[parameters.wanted_format(request, media_types)]()


async def stream_of_ids(
    request: Request,
    ids: Ids,
    tables: Sequence[RefreshingTable],
    read: streams.Read[Any],
    writer: Writer,
    held: ExitStack,
) -> Response:
    """The stream of what `read` finds for the ids; its end closes what is `held`.

    Raises `TooManyQueries`, `StoreDown`.
    """
    service = service_of(request)
    held.enter_context(service.bulk_limit.slot(request.state.client))
    now = time.monotonic()
    for table in tables:
        await service.run_bulk(table.refresher.renew, now, wait_for_end=True)
        table.announce_quarantine()
    return SlotResponse(
        held.pop_all(),
        streams.stream(ids, read, service.run_bulk, writer, service.bulk_limit.chunk_limit),
        headers={"Cache-Control": "no-store"},
        media_type=writer.media_type,
    )


class SlotResponse(StreamingResponse):
    """A stream that frees what it holds when it ends, also if it fails or the client leaves.

    If it fails, its last chunk is never sent and the server closes the connection.
    """

    def __init__(self, held: ExitStack, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response."""
        with self._held:
            try:
                await super().__call__(scope, receive, send)
            except StampedeError as error:
                path, why = scope["path"], error.message
                log.error("answer broken off", path=path, problem=error.name, detail=why)


async def _ids(request: Request, parse: Parse, held: ExitStack) -> Ids:
    """The ids in the body; `held` counts their bytes. Raises `TooLarge`, `BadParameter`."""
    service = service_of(request)
    most = service.settings.bulk_ids
    try:
        with ExitStack() as body_held:
            body = await _body(request, id_list.most_bytes(most), body_held)
            async with service.parsing:
                ids = await service.run_bulk(parse, body, most)
    except TooLarge as error:
        if url := service.settings.bulk_url:
            raise TooLarge(f"{error.message}, or send all of them to {url}") from None
        raise
    service.bulk_bytes.take(ids.nbytes)
    held.callback(service.bulk_bytes.give_back, ids.nbytes)
    return ids


async def _body(request: Request, most: int, held: ExitStack) -> bytearray:
    """The body, of `most` bytes at most; `held` counts those that have come."""
    too_large = TooLarge(f"the ids take more than {most} bytes: split the query")
    length = request.headers.get("content-length", "")
    if length.isdigit() and (len(length) > 18 or int(length) > most):
        raise too_large
    budget, body = service_of(request).bulk_bytes, bytearray()
    held.callback(lambda: budget.give_back(len(body)))
    async for part in request.stream():
        if len(body) + len(part) > most:
            raise too_large
        budget.take(len(part), len(body))
        body += part
    return body
