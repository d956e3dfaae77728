"""Packets: whole messages, of which only the images are stored elsewhere.

An image that a message holds byte for byte is cut out of it; where it stood is kept. `joined` puts
the images back, and the CRC-32 of the message shows that it is the one that was sent. A message
whose images are not in it byte for byte, a compressed container, stays whole.

An alert is one alert in whatever frame it comes: what tells its versions apart is the CRC-32 of its
Avro record (docs/adr/0064-rows-that-mean-the-same.md).

Rows of observing programmes that are not stored are cut out for good. The checksums of the message
that was sent stay beside the packet: whoever has that message can prove what was stored of it.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from stampede.alerts.columns import KINDS, PACKET, cut_columns
from stampede.alerts.container import is_compressed
from stampede.alerts.schema_groups import SchemaGroup
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.decompression import Bytes

LEAST = 512  # bytes of an image: a shorter one saves nothing
HEADS = ("alert_id", "object_id", "mjd")
CHECKSUMS = ("crc32", "sha256", "framed_crc32")
SENT = ("sent_crc32", "sent_sha256", "rows_cut")
ORDER = ("night", "programids")  # by which packets are divided into packs


class Cut(NamedTuple):
    """A place in a packet where an image was cut out: its kind, the place, its length in bytes."""

    kind: str
    position: int
    length: int


def cut(message: Bytes, images: Mapping[str, Bytes | None]) -> tuple[list[Bytes], list[Cut]]:
    """The pieces of a message between those of `images` that it holds, and where these stood.

    `images` are by kind; those that are views of `message` need no search.
    """
    places: list[tuple[int, int, str]] = []
    start = _address(message)
    for kind, image in images.items():
        if image is not None and len(image) >= LEAST:
            begin = _address(image) - start
            if not 0 <= begin <= len(message) - len(image):
                # Snappy leaves an image as it is, but its checksum holds for the whole block.
                begin = -1 if is_compressed(message) else bytes(message).find(bytes(image))
            if begin >= 0:
                places.append((begin, len(image), kind))
    pieces: list[Bytes] = []
    cuts: list[Cut] = []
    end = removed = 0
    for begin, length, kind in sorted(places):
        if begin < end:  # two equal images, found at one place: the second one stays
            continue
        pieces.append(message[end:begin])
        cuts.append(Cut(kind, begin - removed, length))
        end, removed = begin + length, removed + length
    pieces.append(message[end:])
    return pieces, cuts


def joined(packet: Bytes, cuts: Iterable[Cut], image: Callable[[Cut], Iterable[Bytes]]) -> bytes:
    """A packet with the image of each cut where it stood; `image` gives its pieces."""
    pieces: list[Bytes] = []
    end = 0
    for each in sorted(cuts, key=lambda cut: cut.position):
        pieces += packet[end : each.position], *image(each)
        end = each.position
    pieces.append(packet[end:])
    return b"".join(pieces)


def packet_rows(
    groups: Iterable[SchemaGroup], messages: Sequence[Bytes]
) -> tuple[pa.Table, list[list[Bytes]]]:
    """The packets of decoded alerts, at least one, by night and observing programmes.

    Returns
    -------
    tuple[pa.Table, list]
        A row for each packet, and its pieces, which are views of the message. Columns: `number`
        (that of the message), survey, alert_id, object_id, mjd, night, for each kind of cutout
        those of `columns.cut_columns`, `CHECKSUMS`, `SENT`, and `programids`: the observing
        programmes in it, as text. History rows of programmes that are not stored are not in it.
    """
    groups = list(groups)
    records = [record for group in groups for record in group.records]
    crc32s = np.concatenate([group.crc32s for group in groups]).tolist()
    images = [each for group in groups for each in _images(group)]
    mixed = {number: one for group in groups for number, one in group.mixed.items()}
    rows = pa.concat_tables(map(_heads, groups))
    order = pc.sort_indices(rows, [(name, "ascending") for name in ORDER])
    rows = rows.take(order)

    packets = []
    cuts_by_kind = {kind: cut_columns(kind) for kind in KINDS}
    names = [*CHECKSUMS, *chain.from_iterable(cuts_by_kind.values()), *SENT]
    columns: dict[str, list[Any]] = {name: [None] * rows.num_rows for name in names}
    numbers = zip(rows["number"].to_pylist(), order.to_pylist(), strict=True)
    for packet, (number, row) in enumerate(numbers):
        message, record, crc32 = messages[number], records[row], crc32s[row]
        if number in mixed and mixed[number].message is not None:
            proof = crc32, sha256(message).hexdigest(), mixed[number].rows_cut
            for name, value in zip(SENT, proof, strict=True):
                columns[name][packet] = value
            message, record = mixed[number].message or b"", mixed[number].record
            crc32 = isal_zlib.crc32(record)
        kept, cuts = cut(message, images[row])
        packets.append(kept)
        checksums = crc32, sha256(record).digest(), isal_zlib.crc32(message)
        for name, value in zip(CHECKSUMS, checksums, strict=True):
            columns[name][packet] = value
        for kind, *place in cuts:
            for name, value in zip(cuts_by_kind[kind], place, strict=True):
                columns[name][packet] = value
    for name, values in columns.items():
        rows = rows.append_column(name, pa.array(values, PACKET.field(name).type))
    return rows, packets


def message_crc32(row: Mapping[str, Any]) -> int:
    """CRC-32 of the whole message in a row of packets, frame and all.

    Rows that were stored before `framed_crc32` was have it in `crc32`.
    """
    crc32: int = row["crc32"] if row.get("framed_crc32") is None else row["framed_crc32"]
    return crc32


def sent_crc32(row: Mapping[str, Any]) -> int:
    """The number that the cutouts of the message in a row have as `message_crc32`."""
    crc32: int = row["crc32"] if row.get("sent_crc32") is None else row["sent_crc32"]
    return crc32


def _heads(group: SchemaGroup) -> pa.Table:
    """What identifies each packet of a group, a row each, in the order of the group."""
    given = {name: group.heads[name] for name in HEADS}
    survey = pa.repeat(group.survey.NAME, len(group.messages))
    night = pc.floor(given["mjd"])
    number = pa.array(group.messages)
    given["programids"] = _programids(group)
    return pa.table({"number": number, "survey": survey, "night": night, **given})


def _programids(group: SchemaGroup) -> pa.Array:
    """The programmes of each packet, ascending, as text: 1, or 1.2; empty without programmes."""
    if "programid" not in group.heads.column_names:
        return pa.repeat("", len(group.messages))
    texts = group.heads["programid"].cast(pa.string())
    if not group.mixed:
        return texts
    stored = {
        number: ".".join(map(str, sorted(one.programids))) for number, one in group.mixed.items()
    }
    numbers = zip(group.messages.tolist(), texts.to_pylist(), strict=True)
    return pa.array([stored.get(number, text) for number, text in numbers], pa.string())


def _images(group: SchemaGroup) -> Iterator[dict[str, Bytes]]:
    """By kind, the images of each alert in the form in which it was sent."""
    magic = group.survey.IMAGE_MAGIC  # what begins in another way is stored in another form
    for row in range(len(group.messages)):
        images = {kind: group.images[kind][row] for kind in KINDS}
        yield {
            kind: image
            for kind, image in images.items()
            if image is not None and bytes(image[: len(magic)]) == magic
        }


def _address(data: Bytes) -> int:
    address: int = pa.py_buffer(data).address
    return address
