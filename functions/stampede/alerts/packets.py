"""Packets: whole messages, of which only the images are stored elsewhere.

An image that a message holds byte for byte is cut out of it; where it stood is kept. `joined` puts
the images back, and the CRC-32 of the message shows that it is the one that was sent. A message
whose images are not in it byte for byte, a compressed container, stays whole.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from isal import isal_zlib

from stampede.alerts.columns import KINDS, cut_columns
from stampede.alerts.container import Bytes
from stampede.alerts.groups import Group

LEAST = 512  # bytes of an image: a shorter one saves nothing
HEADS = ("alert_id", "object_id", "mjd")


class Cut(NamedTuple):
    """A place in a packet where an image was cut out: its kind, the place, its length in bytes."""

    kind: str
    position: int
    length: int


def cut(message: Bytes, images: Mapping[str, Bytes | None]) -> tuple[bytes, list[Cut]]:
    """A message without those of `images` that it holds, and where they stood, in order.

    `images` are by kind; those that are views of `message` need no search.
    """
    places: list[tuple[int, int, str]] = []
    for kind, image in images.items():
        if image is not None and len(image) >= LEAST:
            begin = _place(message, image)
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
    return b"".join(pieces), cuts


def joined(packet: Bytes, cuts: Iterable[Cut], image: Callable[[Cut], Bytes]) -> bytes:
    """A packet with `image` of each cut where it stood."""
    pieces: list[Bytes] = []
    end = 0
    for each in sorted(cuts, key=lambda cut: cut.position):
        pieces += packet[end : each.position], image(each)
        end = each.position
    pieces.append(packet[end:])
    return b"".join(pieces)


def packet_rows(groups: Iterable[Group], messages: Sequence[Bytes]) -> pa.Table:
    """The packets of decoded alerts, at least one, in the order of their messages.

    Columns: `number` (that of the message), alert_id, survey, object_id, mjd, packet, crc32, and
    for each kind of cutout those of `columns.cut_columns`.
    """
    tables = []
    for group in groups:
        columns: dict[str, list] = {name: [] for name in ("packet", "crc32")}
        columns |= {name: [] for kind in KINDS for name in cut_columns(kind)}
        magic = group.survey.IMAGE_MAGIC
        for row, number in enumerate(group.messages.tolist()):
            # What begins in another way is stored in another form than it was sent.
            images = {
                kind: image
                for kind in KINDS
                if (image := group.images[kind][row]) is not None
                and bytes(image[: len(magic)]) == magic
            }
            packet, cuts = cut(messages[number], images)
            columns["packet"].append(packet)
            columns["crc32"].append(isal_zlib.crc32(messages[number]))
            places = {each.kind: each for each in cuts}
            for kind in KINDS:
                place = places.get(kind)
                at, length = cut_columns(kind)
                columns[at].append(place and place.position)
                columns[length].append(place and place.length)
        types = {"packet": pa.binary(), "crc32": pa.uint32()}
        tables.append(
            pa.table(
                {
                    "number": pa.array(group.messages),
                    "survey": pa.repeat(group.survey.NAME, len(group.messages)),
                    **{name: group.heads[name] for name in HEADS},
                    **{
                        name: pa.array(values, types.get(name, pa.int32()))
                        for name, values in columns.items()
                    },
                }
            )
        )
    rows = pa.concat_tables(tables)
    return rows if len(tables) == 1 else rows.sort_by("number")


def _place(message: Bytes, image: Bytes) -> int:
    """Where a message holds an image; -1 if it does not."""
    begin = _address(image) - _address(message)
    if 0 <= begin <= len(message) - len(image):
        return begin
    return bytes(message).find(bytes(image))


def _address(data: Bytes) -> int:
    address: int = pa.py_buffer(data).address
    return address
