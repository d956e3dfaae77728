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
from stampede.lookup.refreshing_table import RefreshingTable
from stampede.read.api import streams
from stampede.read.api.lightcurves import point_filter
from stampede.read.formats.completeness import Ids
from stampede.read.formats.light_curves import COLUMNS, with_magnitudes
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

CUTOUT_WRITERS: Writers = {"tar": TarWriter, "arrow": partial(ArrowWriter, CUTOUT_ROWS)}


def light_curve_writers(schema: pa.Schema) -> Writers:
    """The formats of many light curves with these columns."""
    return {
        "arrow": partial(ArrowWriter, schema),
        "parquet": partial(ParquetWriter, schema),
        "csv": partial(CsvWriter, schema),
    }


LIGHT_CURVE_WRITERS = light_curve_writers(DETECTION)


async def post_cutouts(request: Request) -> Response:
    """All cutouts of the alerts in the body."""
    lookup = service_of(request).bulk_lookup
    read = partial(streams.read_cutouts, lookup)
    return await stream_of(request, id_list.alert_ids, lookup.cutouts, read, CUTOUT_WRITERS)


async def post_light_curves(request: Request) -> Response:
    """The light curves of the objects in the body."""
    lookup = service_of(request).bulk_lookup
    read: streams.Read[Any] = partial(streams.read_light_curves, lookup, point_filter(request))
    writers = LIGHT_CURVE_WRITERS
    if parameters.flag(request.query_params, "magnitudes"):
        read, writers = partial(_with_magnitudes, read), light_curve_writers(pa.schema(COLUMNS))
    return await stream_of(request, id_list.object_ids, lookup.detections, read, writers)


def _with_magnitudes(read: streams.Read[pa.Table], ids: Sequence[Any]) -> streams.Chunk[pa.Table]:
    chunk = read(ids)
    return chunk._replace(found=with_magnitudes(chunk.found))


async def stream_of(
    request: Request,
    parse: Callable[[bytearray, int], Ids],
    table: RefreshingTable,
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
        return await stream_of_ids(request, ids, table, read, writer, held)


def wanted_writer(request: Request, writers: Writers) -> Writer:
    """A writer of the format that the request wants. Raises `BadParameter`."""
    media_types = {name: writer().media_type for name, writer in writers.items()}
    return writers[parameters.wanted_format(request, media_types)]()


async def stream_of_ids(
    request: Request,
    ids: Ids,
    table: RefreshingTable,
    read: streams.Read[Any],
    writer: Writer,
    held: ExitStack,
) -> Response:
    """The stream of what `read` finds for the ids; its end closes what is `held`.

    Raises `TooManyQueries`, `StoreDown`.
    """
    service = service_of(request)
    held.enter_context(service.bulk_limit.slot(request.state.client))
    await service.run_bulk(table.refresher.renew, time.monotonic(), wait_for_end=True)
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


async def _ids(request: Request, parse: Callable[[bytearray, int], Ids], held: ExitStack) -> Ids:
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
