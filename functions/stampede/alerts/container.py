"""Avro object containers as bytes: parsed with every check, written without copies.

The format is that of the Avro specification, "Object Container Files": a header (magic, a map
of metadata, a 16-byte sync marker), then blocks of records, each followed by the marker.
"""

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import cramjam

from stampede.alerts.schemas import Schema, read_json
from stampede.errors import TooLarge, Undecodable
from stampede.runtime.decompression import Bytes, NotWhole, TooLong, inflate, unsnappy
from stampede.runtime.leb128 import leb128

MAGIC = b"Obj\x01"
SYNC = bytes(range(16))


# The header of a real alert has two entries.
MOST_ENTRIES = 100
_CODECS: Mapping[str, Callable[[Bytes, int], Bytes]] = {"deflate": inflate, "snappy": unsnappy}


class Header(NamedTuple):
    """The head of a container, without its sync marker, which differs from file to file.

    Attributes
    ----------
    text
        The schema, JSON.
    length
        Bytes of the head.
    """

    text: bytes
    codec: str
    length: int

    @property
    def schema(self) -> Schema:
        """The schema. Raises `Undecodable`."""
        return read_json(self.text)


def varint(number: int) -> bytes:
    """Avro's long: zig-zag, seven bits a byte, low bits first."""
    return leb128((number << 1) ^ (number >> 63))


def read_varint(data: Bytes, at: int) -> tuple[int, int]:
    """The long that starts at `at`, and the offset after it. Raises `Undecodable`."""
    shift = number = 0
    while True:
        if at >= len(data) or shift > 63:
            raise Undecodable("the Avro container is cut off or damaged")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7


def read_header(data: Bytes) -> Header:
    """Read the head of a container, all but its schema's text. Raises `Undecodable`."""
    if bytes(data[:4]) != MAGIC:
        raise Undecodable("not an Avro container: it does not begin with 'Obj' 0x01")
    meta: dict[bytes, bytes] = {}
    at, entries = 4, 0
    while True:
        count, at = read_varint(data, at)
        if count == 0:
            break
        if count < 0:  # the specification's long form: the block's size in bytes follows
            count = -count
            _, at = read_varint(data, at)
        entries += count
        if entries > MOST_ENTRIES:
            raise Undecodable(f"the Avro container's header has more than {MOST_ENTRIES} entries")
        for _ in range(count):
            key, at = _read_bytes(data, at)
            meta[key], at = _read_bytes(data, at)
    if b"avro.schema" not in meta:
        raise Undecodable("the Avro container's header holds no schema")
    if at + 16 > len(data):
        raise Undecodable("the Avro container is cut off within its header")
    codec = meta.get(b"avro.codec", b"null").decode("ascii", "backslashreplace")
    return Header(meta[b"avro.schema"], codec, at)


def is_compressed(message: Bytes) -> bool:
    """Whether a message is a container with compressed blocks. Raises `Undecodable`."""
    return bytes(message[:4]) == MAGIC and read_header(message).codec != "null"


def _read_bytes(data: Bytes, at: int) -> tuple[bytes, int]:
    """The Avro bytes that start at `at`, and the offset after them. Raises `Undecodable`."""
    size, start = read_varint(data, at)
    end = start + size
    if size < 0 or end > len(data):
        raise Undecodable("the Avro container is cut off within its header")
    return bytes(data[start:end]), end


def blocks(data: Bytes, header: Header, limit: int) -> Iterator[tuple[int, Bytes]]:
    """Number of records and decompressed bytes of each block.

    Raises `Undecodable` for a damaged container, `TooLarge` for a block that would
    decompress to more than `limit` bytes.
    """
    sync = bytes(data[header.length : header.length + 16])
    at = header.length + 16
    while at < len(data):
        count, at = read_varint(data, at)
        size, at = read_varint(data, at)
        end = at + size
        if size < 0 or count < 0 or end + 16 > len(data):
            raise Undecodable("the Avro container is cut off within a block")
        if bytes(data[end : end + 16]) != sync:
            raise Undecodable("a block of the Avro container does not end in its sync marker")
        yield count, decompress(data[at:end], header.codec, limit)
        at = end + 16


def decompress(block: Bytes, codec: str, limit: int) -> Bytes:
    """Decompress a block (null, deflate, snappy) to at most `limit` bytes.

    Raises `Undecodable`, and `TooLarge` before more than `limit` bytes are made.
    """
    if codec not in ("null", *_CODECS):
        raise Undecodable(
            f"codec {codec[:40]!r} of the Avro container is not one of null, deflate, snappy"
        )
    try:
        if codec != "null":
            return _CODECS[codec](block, limit)
        if len(block) > limit:
            raise TooLong
    except TooLong:
        raise TooLarge(f"the alert decompresses to more than {limit:,} bytes") from None
    except NotWhole as error:
        raise Undecodable(f"{codec} block: {error}") from error
    return block


def compress(data: bytes, codec: str) -> bytes:
    """A block with this content, as `decompress` reads it."""
    if codec == "deflate":
        deflate = zlib.compressobj(wbits=-15)
        return deflate.compress(data) + deflate.flush()
    if codec == "snappy":
        checksum = zlib.crc32(data).to_bytes(4, "big")
        return bytes(cramjam.snappy.compress_raw(data)) + checksum
    return data


def replaced(data: Bytes, header: Header, record: bytes) -> bytes:
    """The container `data`, of one record, with another record in its place."""
    head = bytes(data[: header.length + len(SYNC)])
    block = compress(record, header.codec)
    return b"".join([head, varint(1), varint(len(block)), block, head[-len(SYNC) :]])


def make_header(schema: dict[str, Any]) -> bytes:
    """Head of an uncompressed container, sync marker included."""
    pairs = ((b"avro.schema", json.dumps(schema).encode()), (b"avro.codec", b"null"))
    meta = b"".join(varint(len(k)) + k + varint(len(v)) + v for k, v in pairs)
    return MAGIC + varint(len(pairs)) + meta + varint(0) + SYNC


def make_blocks(records: Iterable[Sequence[Bytes]]) -> Iterator[Bytes]:
    """Pieces of one block per record; a record comes in one piece or more.

    One block for all records would be no faster. With one each, a record of wrong length cannot
    shift the others.
    """
    one = varint(1)
    for record in records:
        yield one + varint(sum(map(len, record)))
        yield from record
        yield SYNC
