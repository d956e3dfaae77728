"""Fuzz targets: each takes any bytes, and raises only if the code under test is wrong.

Whatever a stranger sends, the response is a result or an error that Stampede can explain.
"""

import gzip
import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

import httptools
import numpy as np
import pyarrow as pa
import pydantic_core
from starlette.datastructures import QueryParams

from stampede.alerts.batch_decoder import BatchDecoder
from stampede.alerts.columns import DETECTION
from stampede.alerts.framing import Framing
from stampede.alerts.isolation import Isolation
from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede.events.cloudevents.event import parse
from stampede.images import fits, thumbnail
from stampede.lookup.alert_fields import described, fields_of
from stampede.lookup.stored_records import StoredRecords
from stampede.read.formats.light_curves import FORMATS, with_magnitudes
from stampede.read.web import id_list, parameters
from stampede_simulator.simulator import Mix, Simulator
from tests.support.alerts.batch_decoders import make_batch_decoder
from tests.support.alerts.fits_files import fits_of, lsst, source, ztf

LIMIT = 1 << 20  # bytes of a message, and of an unpacked image
MOST_IDS = 100
VOTABLE = "{http://www.ivoa.net/xml/VOTable/v1.3}"


class Target(NamedTuple):
    """A function to fuzz, and bytes to begin with."""

    run: Callable[[bytes], None]
    seeds: Callable[[], Iterator[bytes]]


def framing(data: bytes) -> None:
    """Take a message out of its frame."""
    with suppress(StampedeError):
        framed = Framing(LIMIT).take(data)
        assert len(framed.record) <= LIMIT


def decoding(data: bytes) -> None:
    """Decode a message with full isolation: rows, or one fault."""
    decoder = _decoder()
    for decode in (decoder.cutouts, decoder.detections):
        decoded = decode([data], Isolation.ALONE)
        (fault,) = decoded.faults
        assert (fault is None) == bool(decoded.rows.num_rows), fault
        assert fault is None or 400 <= fault.status < 500, fault


def image(data: bytes) -> None:
    """Read, trim and draw a FITS file."""
    with suppress(StampedeError):
        pixels = fits.image(data, LIMIT)
        assert pixels.ndim == 2
    with suppress(StampedeError):
        fits.trim(fits.unpack(data, LIMIT))
    with suppress(StampedeError):
        assert thumbnail.thumbnail([data, None, data]).png.startswith(b"\x89PNG")


def event(data: bytes) -> None:
    """Parse an HTTP request as a CloudEvent: lines of headers, an empty line, the body."""
    head, _, body = data.partition(b"\n\n")
    pairs = [line.partition(b":") for line in head.split(b"\n")]
    with suppress(StampedeError):
        parsed = parse([(name.strip(), value.strip()) for name, _, value in pairs], body)
        assert isinstance(parsed.data, bytes)
        assert parsed.attributes["id"]
        str(parsed), parsed.position


def http_parameters(data: bytes) -> None:
    """Read the parameters of a request: ids, numbers, flags."""
    text = data.decode("utf-8", "surrogateescape")
    with suppress(StampedeError):
        assert 0 < parameters.alert_id(text) < 1 << 63
    with suppress(StampedeError):
        assert parameters.object_id(text)
    query = QueryParams(data.decode("latin-1"))
    for read in (
        lambda: parameters.survey(query),
        lambda: parameters.flag(query, "trim"),
        lambda: parameters.number(query, "low", -1.0, 1e6),
        lambda: parameters.check_names(query, {"trim", "low", "survey"}),
    ):
        with suppress(StampedeError):
            read()


def id_lists(data: bytes) -> None:
    """Read the ids of a bulk query."""
    with suppress(StampedeError):
        assert len(id_list.alert_ids(bytearray(data), MOST_IDS)) <= MOST_IDS
    with suppress(StampedeError):
        assert len(id_list.object_ids(bytearray(data), MOST_IDS)) <= MOST_IDS


def fields(data: bytes) -> None:
    """Give all fields of an alert as JSON, and one of them as among all; what the schema says."""
    with suppress(StampedeError):
        found = described(_records(), data).fields
        whole = pydantic_core.to_json(found, inf_nan_mode="null")
        for name in [*found][-1:]:
            some = pydantic_core.to_json(fields_of(_records(), data, [name]), inf_nan_mode="null")
            assert json.loads(some) == {name: json.loads(whole)[name]}


def light_curve(data: bytes) -> None:
    """Write a light curve with any text and any numbers in every format."""
    text = data.decode("utf-8", "replace")
    numbers = iter(np.resize(np.frombuffer(data.ljust(8, b"\0")[: len(data) // 8 * 8 or 8]), 100))
    rows = [_row(part, numbers) for part in text.split("\0", 3)]
    curve = with_magnitudes(pa.Table.from_pylist(rows, DETECTION))
    written = {name: format.write(curve) for name, format in FORMATS.items()}
    assert json.loads(written["json"])["detections"][0]["procstatus"] == rows[0]["procstatus"]
    assert pa.ipc.open_stream(written["arrow"]).read_all()["procstatus"].equals(curve["procstatus"])
    cells = [cell.text for cell in ElementTree.fromstring(written["votable"]).iter(f"{VOTABLE}TD")]
    assert len(cells) == curve.num_columns * len(rows)


def http(data: bytes) -> None:
    """Parse the bytes of a connection, in two parts, and the address in them."""
    parser = httptools.HttpRequestParser(_Requests())
    with suppress(httptools.HttpParserError):
        for part in (data[: len(data) // 2], data[len(data) // 2 :]):
            parser.feed_data(part)


class _Requests:
    """What the parser calls."""

    def on_url(self, url: bytes) -> None:
        with suppress(httptools.HttpParserInvalidURLError):
            httptools.parse_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        assert isinstance(name + value, bytes)

    def on_body(self, body: bytes) -> None:
        assert isinstance(body, bytes)


def _row(text: str, numbers: Iterator[float]) -> dict:
    """A point of a light curve with such a text and such numbers."""
    values: dict[str, object] = {"object_id": "ZTF21abiuvdk", "survey": "ztf", "procstatus": text}
    for field in DETECTION:
        number = next(numbers, 0.0)
        if pa.types.is_float32(field.type):
            number = np.clip(number, -3e38, 3e38)
        if pa.types.is_floating(field.type):
            values[field.name] = number
        elif not pa.types.is_string(field.type) and not field.nullable:
            values[field.name] = 0 if pa.types.is_integer(field.type) else number > 0
    return values


@cache
def _records() -> StoredRecords:
    return StoredRecords(Settings(schema_registry=None))


@cache
def _decoder() -> BatchDecoder:
    return make_batch_decoder(Path(tempfile.mkdtemp(prefix="stampede-fuzz-")), 70_000.0)


def _alerts() -> Iterator[bytes]:
    for alert in Simulator(1, mix=Mix(corrupt=0.4)).alerts(30):
        yield alert.body
    for codec in ("deflate", "snappy"):
        for alert in Simulator(1, mix=Mix(lsst_share=0.0), codec=codec).alerts(3):
            yield alert.body


def _files() -> Iterator[bytes]:
    yield from (ztf(source(9)), lsst(source(9)), gzip.compress(lsst(source(9)), mtime=0))
    yield from (fits_of(3, 4, bitpix) for bitpix in (8, 16, 32, 64, -32, -64))
    yield b""


def _light_curves() -> Iterator[bytes]:
    numbers = np.array([60000.5, 10.0, -5.0, np.nan, np.inf, -1e300]).tobytes()
    yield from (b"0", b"56,61" + numbers, b"5" * 138 + b"\0", "é\r\n<&>]]>￾\0=1+1".encode())


def _connections() -> Iterator[bytes]:
    yield b"GET /v1/alerts/1?survey=ztf HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"
    yield b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    yield b"POST http://[::1]:80/a?b#c HTTP/1.0\r\nContent-Length: 3\r\n\r\nabcGET /d HTTP/1.1\r\n"


def _requests() -> Iterator[bytes]:
    headers = b"ce-specversion: 1.0\nce-id: 1\nce-type: t\nce-source: /kafkasources/s#topic"
    yield headers + b"\nce-subject: partition:3#17\nce-time: 2026-11-20T00:00:00Z\n\nbody"
    yield headers + b"\ncontent-type: application/json\n\n{}"
    yield (
        b"content-type: application/cloudevents+json\n\n"
        b'{"specversion":"1.0","id":"1","type":"t","source":"s","data_base64":"AAEC"}'
    )


def _texts() -> Iterator[bytes]:
    yield from (
        b"170239611403501616",
        b"ZTF21abiuvdk",
        b"trim=true&low=12.5&survey=lsst",
        b"",
        b"%00",
    )


def _id_texts() -> Iterator[bytes]:
    yield from (
        b'{"ids":["1","2",3]}',
        b"1\n2\n3\n",
        b'["1"]',
        b'{"ids":[]}',
        b'{"ids":["\\ud800"]}',
    )


TARGETS = {
    "framing": Target(framing, _alerts),
    "decoding": Target(decoding, _alerts),
    "fields": Target(fields, _alerts),
    "image": Target(image, _files),
    "event": Target(event, _requests),
    "http_parameters": Target(http_parameters, _texts),
    "id_lists": Target(id_lists, _id_texts),
    "light_curve": Target(light_curve, _light_curves),
    "http": Target(http, _connections),
}
