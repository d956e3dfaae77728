"""Alerts that `replay` sends: each a message put together from its packet and its images."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

import pyarrow as pa
from isal import isal_zlib

from stampede.alerts.packets import Cut, joined, message_crc32, sent_crc32
from stampede.errors import Undecodable
from stampede.events.cloudevents.record_bytes import Header, unpacked
from stampede.lookup.lookup import Lookup
from stampede.lookup.packs.images import Absent, Parts
from stampede.lookup.packs.packet_reader import cuts_of
from stampede.runtime.decompression import Bytes

T = TypeVar("T")
Images: TypeAlias = Mapping[tuple[int, str, str, int | None], Parts]

REPLACED = "\ufffd"  # what a KafkaSource makes of bytes that are no text
WHY = {
    Absent.GONE: "its retention is over",
    Absent.DAMAGED: "it is damaged",
    Absent.NOT_SENT: "it is not stored",
}


class Replayed(NamedTuple):
    """One alert to send.

    Attributes
    ----------
    milliseconds
        Timestamp of the Kafka record that it came in, since 1970-01-01 UTC; None if it had none.
    key, headers
        Those of that record.
    lost
        What is lost of key and headers; empty if nothing is, None if nobody knows.
    alert_id
        Names the alert.
    """

    message: bytes
    key: bytes | None
    headers: Sequence[Header]
    milliseconds: int | None
    lost: str | None
    alert_id: int


class Unsendable(NamedTuple):
    """An alert that is not whole any more, and why.

    Attributes
    ----------
    alert_id
        None for a whole pack of which nobody knows the alerts.
    gone
        Whether retention has deleted an image of it.
    """

    alert_id: int | None
    why: str
    gone: bool = False


class PackRead(NamedTuple):
    """What was read for the alerts of a pack.

    Attributes
    ----------
    alerts
        In the order to send them: the row of `columns.PACKET` without the packet, `time` as
        milliseconds, and the packet.
    images
        As `Lookup.parts_of` returns them: not verified, as the message has a checksum.
    """

    alerts: Sequence[tuple[dict[str, Any], pa.Buffer]]
    images: Images


class _Missing(Exception):
    """An image of an alert is not there; the message says why, `gone` whether for ever."""

    def __init__(self, why: str, gone: bool = False) -> None:
        super().__init__(why)
        self.gone = gone


def replayed(read: PackRead, lookup: Lookup) -> Iterator[Replayed | Unsendable]:
    """The alerts of a pack. Raises `StoreDown`.

    A message is made when it is asked for. So the sender that copies it finds it in the CPU's
    cache.
    """
    for row, packet in read.alerts:
        try:
            message = _message(row, memoryview(packet), read.images, lookup)
        except _Missing as error:
            yield Unsendable(row["alert_id"], str(error), error.gone)
            continue
        key, headers, lost = record_of(row)
        yield Replayed(message, key, headers, row["time"], lost, row["alert_id"])


def record_of(row: dict[str, Any]) -> tuple[bytes | None, Sequence[Header], str | None]:
    """Key and headers of the Kafka record of a row, and what is lost of them, as of `Replayed`."""
    if row["record"]:
        try:
            return unpacked(row["record"])
        except Undecodable as error:  # it is as a sender made it
            lost = f"its key and headers, which cannot be read: {error.message}"
            return None, (), lost
    texts: dict[str, str] = json.loads(row["headers"] or "{}")
    key = None if row["key"] is None else row["key"].encode()
    headers = [(name, value.encode()) for name, value in texts.items()]
    if row["record"] is not None:
        return key, headers, ""
    spoilt = [f"its header {name}" for name, value in texts.items() if REPLACED in value]
    if row["key"] and REPLACED in row["key"]:
        spoilt.insert(0, "its key")
    return key, headers, f"bytes that are no UTF-8: {', '.join(spoilt)}" if spoilt else None


def _message(row: dict[str, Any], packet: Bytes, images: Images, lookup: Lookup) -> bytes:
    """The message in a row, as it was sent. Raises `_Missing` if it is not whole, `StoreDown`."""
    cuts = cuts_of(row)

    def of_kind(images: Mapping[tuple[int, str, str, int | None], T], kind: str) -> T | None:
        names = row["alert_id"], row["survey"], kind
        return images.get((*names, sent_crc32(row))) or images.get((*names, None))

    found = {cut.kind: of_kind(images, cut.kind) for cut in cuts}
    if None not in found.values():
        message = joined(packet, cuts, lambda cut: found[cut.kind] or ())
        if isal_zlib.crc32(message) == message_crc32(row):
            return message
    # Something is damaged or missing: read each image alone, which verifies it.
    message_of = row["alert_id"], row["survey"], sent_crc32(row)
    files = lookup.images_of([message_of] if cuts else [])

    def image(cut: Cut) -> list[bytes]:
        file = of_kind(files, cut.kind) or Absent.NOT_SENT
        if isinstance(file, Absent):
            raise _Missing(f"its {cut.kind} cutout: {WHY[file]}", file is Absent.GONE)
        return [file]

    message = joined(packet, cuts, image)
    if isal_zlib.crc32(message) != message_crc32(row):
        raise _Missing("with its images it does not have its CRC-32")
    return message
