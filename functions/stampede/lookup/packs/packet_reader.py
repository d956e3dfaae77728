"""Packets: whole messages, put together from pages of packets and the images in packs."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import pyarrow as pa
from isal import isal_zlib

from stampede.alerts.columns import KINDS, cut_columns
from stampede.alerts.packets import Cut, joined, message_crc32, sent_crc32
from stampede.errors import Damaged, NotFound
from stampede.lookup.errors import DamagedPacket, Gone, NoPacket
from stampede.lookup.packs.images import Images
from stampede.lookup.packs.locations import CutoutLocation, of_message
from stampede.store.objects.object_store import Objects
from stampede.store.packs.pack_name import night_of
from stampede.store.packs.retention import Retention
from stampede.store.parquet import pages
from stampede.telemetry import read_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()


class PacketLocation(NamedTuple):
    """Where the packet of one alert is, and which images were cut out of it.

    Attributes
    ----------
    offset, length
        Of its page in `pack`.
    row
        Its number in that page.
    crc32, sent_crc32, sent_sha256, rows_cut, framed_crc32
        As in `columns.PACKET_LOCATION`.
    """

    alert_id: int
    survey: str
    object_id: str
    mjd: float
    pack: str
    offset: int
    length: int
    row: int
    crc32: int
    sent_crc32: int | None
    sent_sha256: str | None
    rows_cut: int | None
    framed_crc32: int | None
    cuts: tuple[Cut, ...]

    @property
    def record_crc32(self) -> int:
        """CRC-32 of the record that the survey sent: its cutouts have this number."""
        return sent_crc32(self._asdict())

    @property
    def message_crc32(self) -> int:
        """CRC-32 of the message that is given."""
        return message_crc32(self._asdict())


def packet_locations(rows: pa.Table, survey: str | None = None) -> list[PacketLocation]:
    """The locations in rows of the table `packets`; only those of `survey` unless it is None."""
    fields = PacketLocation._fields[:-1]
    return [
        PacketLocation._make((*(row[name] for name in fields), cuts_of(row)))
        for row in rows.to_pylist()
        if survey in (None, row["survey"])
    ]


def cuts_of(row: dict[str, Any]) -> tuple[Cut, ...]:
    """The cuts in a row of `columns.PACKET` or `columns.PACKET_LOCATION`."""
    names = [(kind, *cut_columns(kind)) for kind in KINDS]
    return tuple(
        Cut(kind, row[at], row[length]) for kind, at, length in names if row[at] is not None
    )


class Packets:
    """The packets of a store."""

    def __init__(self, objects: Objects, images: Images, retention: Retention) -> None:
        self._objects, self._images, self._retention = objects, images, retention

    def message(self, packet: PacketLocation, cutouts: Sequence[CutoutLocation]) -> bytes:
        """The message that the survey sent, byte for byte but for history rows that were cut out.

        `cutouts` are those of all versions of the alert.

        Raises
        ------
        Gone
            Retention has deleted the packet, or an image of it.
        NoPacket
            An image is not stored: not yet, or because `cutouts` refused the alert.
        DamagedImage, DamagedPacket
            What is stored is not what was sent.
        StoreDown
            The store does not answer.
        """
        by_kind = of_message(cutouts, packet.record_crc32)
        for cut in packet.cuts:
            if cut.kind not in by_kind:
                raise NoPacket(
                    f"the {cut.kind} cutout of alert {packet.alert_id} is not stored, so its "
                    "message is not whole: it is stored later, or `cutouts` refused the alert, "
                    "which is a dead letter then"
                )
        content = self._packet(packet)
        # The images of a message share a page: one GET, unpacked once, instead of one per image.
        # The message's own CRC-32 verifies them.
        parts = dict(self._images.unverified([by_kind[cut.kind] for cut in packet.cuts]))
        if len(parts) == len(packet.cuts):
            message = joined(content, packet.cuts, lambda cut: parts[by_kind[cut.kind]])
            if isal_zlib.crc32(message) == packet.message_crc32:
                return message
        # Each image alone: it is read twice and verified, and its error says what is wrong.
        alone = self._images.fits
        message = joined(content, packet.cuts, lambda cut: [alone(by_kind[cut.kind])])
        if isal_zlib.crc32(message) != packet.message_crc32:
            raise _damaged(packet, "with its images it does not have its CRC-32")
        return message

    def expired(self, packet: PacketLocation) -> bool:
        """Whether a packet is past its retention."""
        return self._retention.expired(packet.pack)

    def whole(self, packet: PacketLocation, cutouts: Sequence[CutoutLocation]) -> bool:
        """Whether the packet and all images that were cut out of it are stored and kept.

        `cutouts` are those of all versions of the alert.
        """
        by_kind = of_message(cutouts, packet.record_crc32)
        kept = {
            kind
            for kind, one in by_kind.items()
            if one.pack is not None and not self._retention.expired(one.pack)
        }
        return {cut.kind for cut in packet.cuts} <= kept and not self.expired(packet)

    def without_images(self, packet: PacketLocation) -> bytes:
        """The message with zeros in place of its images. Raises as `message`."""
        return joined(self._packet(packet), packet.cuts, lambda cut: [bytes(cut.length)])

    def many_without_images(
        self, packets: Iterable[PacketLocation]
    ) -> Iterator[tuple[PacketLocation, bytes | Gone | DamagedPacket]]:
        """As `without_images` of each packet, or why there is none, in the order of packs.

        The packets of an object lie together: those of a page are read by one request, and one
        page is unpacked at a time. Raises `StoreDown`.
        """
        in_order = sorted(packets, key=lambda one: (_page(one), one.row))
        for _, of_page in groupby(in_order, key=_page):
            some = list(of_page)
            try:
                contents = self._on_page(some)
            except (Gone, DamagedPacket) as error:
                yield from ((packet, error) for packet in some)
                continue
            for packet, content in zip(some, contents, strict=True):
                yield packet, joined(content, packet.cuts, lambda cut: [bytes(cut.length)])

    def _packet(self, packet: PacketLocation) -> memoryview:
        return self._on_page([packet])[0]

    def _on_page(self, packets: Sequence[PacketLocation]) -> list[memoryview]:
        """The packets on one page. Raises `Gone`, `DamagedPacket`, `StoreDown`."""
        packet, fault = packets[-1], ""  # the last one of the page
        for _ in range(2):  # the second read tells a damaged object from a damaged answer
            try:
                page = self._objects.get(packet.pack, packet.offset, packet.length)
                values = pages.values(page)
                if packet.row < len(values):
                    return [values[each.row] for each in packets]
                fault = "its page has fewer packets"
            except NotFound:
                if self._retention.expired(packet.pack):
                    days, night = self._retention.packet_days, night_of(packet.pack)
                    retention = f"packets are kept for {days} days"
                    raise Gone(f"{retention}, and this one is of the night MJD {night}") from None
                fault = "the pack is missing from the store"
            except Damaged as error:
                fault = error.message
        raise _damaged(packet, fault)


def _page(packet: PacketLocation) -> tuple[str, int, int]:
    return packet.pack, packet.offset, packet.length


def _damaged(packet: PacketLocation, fault: str) -> DamagedPacket:
    read_metrics.DAMAGED_IMAGES.inc()
    log.error("a packet is damaged", pack=packet.pack, offset=packet.offset, fault=fault)
    return DamagedPacket(
        f"the packet of alert {packet.alert_id} in {packet.pack} is damaged: {fault}. "
        "`stampede reconcile` restores the pack if the second site has it"
    )
