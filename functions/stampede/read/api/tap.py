"""Table Access Protocol 1.1: ADQL by pyvo and TOPCAT, and what the service says of itself.

https://www.ivoa.net/documents/TAP/20190927/. An error is a VOTable with the status of the error.
"""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import ExitStack
from functools import partial, wraps
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from stampede.config.settings import Settings
from stampede.errors import NotFound, StampedeError, StoreDown
from stampede.lookup import response_warnings
from stampede.lookup.cone_search import Times
from stampede.lookup.errors import BadParameter
from stampede.lookup.refreshing_table import RefreshingTable
from stampede.read.api.bulk import SlotResponse
from stampede.read.api.cross_match import Match
from stampede.read.api.streams import pieces
from stampede.read.formats import votable
from stampede.read.formats.completeness import NONE, Completeness
from stampede.read.formats.votable import VOTableWriter
from stampede.read.formats.writers import ArrowWriter, CsvWriter, ParquetWriter, Writer
from stampede.read.service import ReadService, ThreadRunner, service_of
from stampede.read.summaries.night_counts import NightCounts
from stampede.read.summaries.nights import NightPacks, nights_of
from stampede.read.tap import documents, tables
from stampede.read.tap.process import Answer, Query
from stampede.read.tap.sources import Sources
from stampede.read.tap.uploads import MOST_ROWS as MOST_UPLOADED
from stampede.read.tap.uploads import uploaded
from stampede.read.web.form import Form, form_of

MOST_BYTES = 16 << 20
"""Bytes of a request, uploads included."""
OVERFLOW = "Stampede-Overflow"
"""Header of a result that has not all rows, in formats that have no other place to say so."""
_FORMATS = {
    "votable": votable.MEDIA_TYPE,
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
    "arrow": "application/vnd.apache.arrow.stream",
}
_ALIASES = {
    **{name: name for name in _FORMATS},
    **{media_type: name for name, media_type in _FORMATS.items()},
    **dict.fromkeys(("votable/td", "text/xml", "application/xml"), "votable"),
}
_LANGUAGES = ("ADQL", "ADQL-2.0", "ADQL-2.1")
_MAXREC = re.compile(r"[0-9]{1,18}")
_AT_ONCE = 5000
_AROUND = 1000

Handler = Callable[[Request], Awaitable[Response]]


class Wanted(NamedTuple):
    """A query, and the format of its result."""

    query: Query
    format: str


def with_error_documents(handler: Handler) -> Handler:
    """A handler whose errors are VOTables (DALI 1.1, section 4.2)."""

    @wraps(handler)
    async def answered(request: Request) -> Response:
        try:
            return await handler(request)
        except StampedeError as error:
            headers = {"Cache-Control": "no-store"}
            if error.status in (429, 503):
                headers["Retry-After"] = "5"
            document = votable.error_document(error.message)
            return Response(document, error.status, headers, votable.MEDIA_TYPE)

    return answered


@with_error_documents
async def answer_query(request: Request) -> Response:
    """The result of a query."""
    service = service_of(request)
    check_offered(service)
    form = await form_of(request, MOST_BYTES, service.bulk_bytes)
    wanted = await wanted_query(service, form, service.settings.tap_seconds)
    with ExitStack() as held:
        held.enter_context(service.query_limit.slot(request.state.client))
        answer, body = await service.run_query(_run, sources_of(request), service, wanted)
        return respond(answer, wanted.format, body or service.run_bulk, held)


def _run(sources: Sources, service: ReadService, wanted: Wanted) -> tuple[Answer, bytes]:
    """Run a query; blocks. The bytes of the result too if they are few, otherwise none.

    Raises `BadAdql`, `QueryTooLarge`, `QueryFailed`, `StoreDown`.
    """
    answer = service.queries.run(wanted.query, sources.rows_of)
    few = answer.rows.num_rows <= _AT_ONCE
    return answer, b"".join(whole(answer, wanted.format)) if few else b""


def check_offered(service: ReadService) -> None:
    """Raise `NotFound` if this process answers no queries in ADQL."""
    if not service.settings.tap_queries:
        url = service.settings.bulk_url
        raise NotFound(f"no queries in ADQL here{f': send them to {url}/tap' if url else ''}")


async def wanted_query(service: ReadService, form: Form, seconds: float) -> Wanted:
    """What parameters ask for. Raises `BadParameter`."""
    values = form.values
    if values.get("REQUEST", "doQuery") != "doQuery":
        raise BadParameter("REQUEST", "REQUEST must be doQuery")
    if "LANG" not in values:
        raise BadParameter("LANG", "LANG is missing: say LANG=ADQL")
    if values["LANG"].upper() not in _LANGUAGES:
        raise BadParameter("LANG", f"LANG must be ADQL: {values['LANG'][:40]!r}")
    if not values.get("QUERY", "").strip():
        raise BadParameter("QUERY", "QUERY is missing: say QUERY=SELECT …")
    async with service.parsing:
        given = await service.run_bulk(uploaded, form)
    rows = most_rows(values, service.settings)
    return Wanted(Query(values["QUERY"], given, rows, seconds), wanted_format(values))


def wanted_format(values: dict[str, str]) -> str:
    """The name of the format that RESPONSEFORMAT or FORMAT names. Raises `BadParameter`."""
    name = values.get("RESPONSEFORMAT", values.get("FORMAT", "votable"))
    plain = name.lower().partition(";")[0].strip()
    if plain not in _ALIASES:
        known = ", ".join(_FORMATS)
        raise BadParameter("RESPONSEFORMAT", f"must be one of {known}: {name[:40]!r}")
    return _ALIASES[plain]


def most_rows(values: dict[str, str], settings: Settings) -> int:
    """How many rows a result has at most. Raises `BadParameter`."""
    text = values.get("MAXREC")
    if text is None:
        return settings.tap_rows
    if not _MAXREC.fullmatch(text):
        raise BadParameter("MAXREC", f"MAXREC must be a number of rows: {text[:40]!r}")
    return min(int(text), settings.tap_rows)


def respond(answer: Answer, format: str, body: bytes | ThreadRunner, held: ExitStack) -> Response:
    """The response with a result: its bytes, or made of it by threads.

    The end of the response closes what is `held`.
    """
    extension = {"votable": "vot"}.get(format, format)
    headers = {
        "Cache-Control": "no-store",
        "Content-Disposition": f'inline; filename="result.{extension}"',
        **({OVERFLOW: "true"} if answer.overflow else {}),
    }
    media_type = _FORMATS[format]
    if isinstance(body, bytes):
        return Response(body, headers=headers, media_type=media_type)
    return SlotResponse(
        held.pop_all(), _stream(answer, format, body), headers=headers, media_type=media_type
    )


async def _stream(
    answer: Answer, format: str, run_in_thread: ThreadRunner
) -> AsyncIterator[memoryview]:
    found = whole(answer, format)
    while data := await run_in_thread(next, found, b""):
        for piece in pieces(data):
            yield piece


def whole(answer: Answer, format: str) -> Iterator[bytes]:
    """The bytes of a result, some rows at a time."""
    writer, rows = _writer(answer, format), answer.rows
    for start in range(0, max(1, rows.num_rows), _AT_ONCE):
        if data := writer.add(rows[start : start + _AT_ONCE]):  # Parquet waits for more
            yield data
    yield writer.end(Completeness(NONE, NONE, response_warnings.incomplete()))


def _writer(answer: Answer, format: str) -> Writer:
    """What writes a result in a format."""
    schema = answer.rows.schema
    if format == "votable":
        ucds = {field.name: (field.metadata or {}).get(b"ucd", b"").decode() for field in schema}
        writer = VOTableWriter("result", schema, ucds)
        writer.overflow = answer.overflow
        return writer
    makers: dict[str, Callable[[pa.Schema], Writer]] = {
        "csv": CsvWriter,
        "parquet": ParquetWriter,
        "arrow": ArrowWriter,
    }
    return makers[format](schema)


def sources_of(request: Request) -> Sources:
    """The tables of this service's store."""
    state = request.app.state
    if not hasattr(state, "tap_sources"):
        service = service_of(request)
        lookup = service.bulk_lookup
        counts = NightCounts(
            lookup.objects, NightPacks(lookup.objects, lookup.rights), service.pack_alerts
        )
        state.tap_sources = Sources(
            lookup,
            partial(_around, lookup.positions),
            partial(nights_of, lookup.objects),
            counts.of,
        )
    sources: Sources = state.tap_sources
    return sources


def _around(table: RefreshingTable, places: np.ndarray, radius: float) -> Iterator[pa.Table]:
    """The objects around each of some positions: rows of `cross_match.MATCHED`."""
    match = Match(table, radius, Times())
    order = match.take(places)
    for start in range(0, len(order), _AROUND):
        yield match.read(order[start : start + _AROUND].tolist()).found


@with_error_documents
async def get_capabilities(request: Request) -> Response:
    """What this service of TAP can do."""
    service = service_of(request)
    check_offered(service)
    base = f"{service.access.proxies.origin_of(request)}/tap"
    settings = service.settings
    bounds = documents.Bounds(settings.tap_seconds, settings.tap_rows, MOST_UPLOADED)
    return Response(documents.capabilities(base, bounds), media_type=documents.MEDIA_TYPE)


@with_error_documents
async def get_tables(request: Request) -> Response:
    """The tables and their columns."""
    check_offered(service_of(request))
    return Response(documents.tables(), media_type=documents.MEDIA_TYPE)


@with_error_documents
async def get_table(request: Request) -> Response:
    """One table and its columns."""
    check_offered(service_of(request))
    name = request.path_params["table"].lower()
    if name not in {table.name for table in tables.TABLES}:
        raise NotFound(f"there is no table {name[:80]!r}: /tap/tables has all")
    return Response(documents.tables(name), media_type=documents.MEDIA_TYPE)


async def get_availability(request: Request) -> Response:
    """Whether queries are answered now."""
    service = service_of(request)
    try:
        check_offered(service)
        await service.run_bulk(service.lookup.check_store)
        document = documents.availability(True)
    except (NotFound, StoreDown) as error:
        document = documents.availability(False, error.message)
    return Response(document, headers={"Cache-Control": "no-store"}, media_type="text/xml")
