"""Routes of large queries: many ids in, one stream out."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from stampede.alerts.columns import DETECTION
from stampede.errors import TooLarge
from stampede.read import parameters, streams
from stampede.read.lightcurves import wanted_points
from stampede.read.lookup import Lookup, RefreshingTable
from stampede.read.problems import TooManyQueries

CUTOUT_WRITERS: dict[str, Callable[[], streams.Writer]] = {
    "tar": streams.TarWriter,
    "arrow": partial(streams.ArrowWriter, streams.CUTOUT_ROWS),
}
LIGHT_CURVE_WRITERS: dict[str, Callable[[], streams.Writer]] = {
    "arrow": partial(streams.ArrowWriter, DETECTION),
    "parquet": streams.ParquetWriter,
    "csv": streams.CsvWriter,
}


async def post_cutouts(request: Request) -> Response:
    """All cutouts of the alerts whose ids are sent."""
    lookup: Lookup = request.app.state.bulk_lookup
    read = partial(streams.read_cutouts, lookup)
    return await _answer(request, parameters.alert_ids, lookup.cutouts, read, CUTOUT_WRITERS)


async def post_light_curves(request: Request) -> Response:
    """The light curves of the objects whose ids are sent."""
    lookup: Lookup = request.app.state.bulk_lookup
    read = partial(streams.read_light_curves, lookup, wanted_points(request))
    return await _answer(
        request, parameters.object_ids, lookup.detections, read, LIGHT_CURVE_WRITERS
    )


async def _answer(
    request: Request,
    parse: Callable[[bytes, int], streams.Ids],
    table: RefreshingTable,
    read: Callable,
    writers: dict[str, Callable[[], streams.Writer]],
) -> Response:
    state = request.app.state
    types = {name: writer().media_type for name, writer in writers.items()}
    writer = writers[parameters.wanted_format(request, types)]()
    with ExitStack() as slot:
        slot.enter_context(_one_more(state))
        most = state.settings.bulk_ids
        try:
            ids = await state.bulk(parse, await _body(request, parameters.most_bytes(most)), most)
        except TooLarge as error:
            if elsewhere := state.settings.bulk_url:
                raise TooLarge(f"{error.message}, or all at once of {elsewhere}") from None
            raise
        await state.bulk(table.list_since, time.monotonic())
        content = streams.stream(ids, read, state.bulk, writer)
        headers = {"Cache-Control": "no-store"}
        return _Slotted(slot.pop_all(), content, headers=headers, media_type=writer.media_type)


class _Slotted(StreamingResponse):
    """A stream that gives its slot back when it ends, whichever way."""

    def __init__(self, slot: ExitStack, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._slot = slot

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._slot:
            await super().__call__(scope, receive, send)


@contextmanager
def _one_more(state: State) -> Iterator[None]:
    if state.under_way >= state.settings.bulk_queries:
        raise TooManyQueries(f"{state.under_way} large queries are under way: try again later")
    state.under_way += 1
    try:
        yield
    finally:
        state.under_way -= 1


async def _body(request: Request, most: int) -> bytes:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise TooLarge(f"the ids take more than {most} bytes: ask in parts")
        parts.append(part)
    return b"".join(parts)
