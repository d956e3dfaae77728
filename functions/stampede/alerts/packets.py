"""Packets: whole messages, of which only the images are stored elsewhere.

An image that a message holds byte for byte is cut out of it; where it stood is kept. `joined` puts
the images back, and the CRC-32 of the message shows that it is the one that was sent. A message
whose images are not in it byte for byte, a compressed container, stays whole.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from isal import isal_zlib

from stampede import compute as pc
from stampede.alerts.columns import KINDS, cut_columns
from stampede.alerts.container import Bytes
from stampede.alerts.groups import Group

LEAST = 512  # bytes of an image: a shorter one saves nothing
HEADS = ("alert_id", "object_id", "mjd")
ORDER = ("night", "object_id", "mjd", "alert_id", "survey")  # of packets in packs


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
                begin = bytes(message).find(bytes(image))
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
    groups: Iterable[Group], messages: Sequence[Bytes]
) -> tuple[pa.Table, list[list[Bytes]]]:
    """The packets of decoded alerts, at least one, by night and in the order of a pack.

    Returns
    -------
    tuple[pa.Table, list]
        A row for each packet, and its pieces, which are views of the message. Columns: `number`
        (that of the message), survey, alert_id, object_id, mjd, night, crc32, and for each kind of
        cutout those of `columns.cut_columns`.
    """
    heads: list[pa.Table] = []
    images: list[dict[str, Bytes]] = []
    for group in groups:
        given = {name: group.heads[name] for name in HEADS}
        survey = pa.repeat(group.survey.NAME, len(group.messages))
        night = pc.floor(given["mjd"])
        number = pa.array(group.messages)
        heads.append(pa.table({"number": number, "survey": survey, "night": night, **given}))
        images += _images(group)
    rows = pa.concat_tables(heads)
    order = pc.sort_indices(rows, [(name, "ascending") for name in ORDER])
    rows = rows.take(order)

    packets, checksums = [], []
    columns = {kind: cut_columns(kind) for kind in KINDS}
    places: dict[str, list[int | None]] = {
        name: [None] * rows.num_rows for names in columns.values() for name in names
    }
    numbers = zip(rows["number"].to_pylist(), order.to_pylist(), strict=True)
    for packet, (number, row) in enumerate(numbers):
        kept, cuts = cut(messages[number], images[row])
        packets.append(kept)
        checksums.append(isal_zlib.crc32(messages[number]))
        for kind, position, length in cuts:
            at, size = columns[kind]
            places[at][packet], places[size][packet] = position, length
    rows = rows.append_column("crc32", pa.array(checksums, pa.uint32()))
    for name, values in places.items():
        rows = rows.append_column(name, pa.array(values, pa.int32()))
    return rows, packets


def _images(group: Group) -> Iterator[dict[str, Bytes]]:
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
