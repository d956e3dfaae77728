"""Images in packs: read by byte ranges, and verified before they are believed.

A cutout is part of a page, which holds those of its message and is compressed, and of a tail, which
many alerts share. A thumbnail is a range of its pack. An image is right if it has the length and
the CRC-32 of its location row.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import TypeAlias

from isal import isal_zlib

from stampede.alerts.bounds import MOST_IMAGE_BYTES
from stampede.alerts.columns import KINDS
from stampede.errors import NotFound
from stampede.lookup.errors import DamagedImage, Gone
from stampede.lookup.packs.locations import (
    CutoutLocation,
    ThumbnailLocation,
    grouped_by_request,
    no_such_cutout,
)
from stampede.runtime.clock import now_mjd
from stampede.store.objects.lru_cache import Cache
from stampede.store.objects.object_store import Objects
from stampede.store.packs.pack import expired
from stampede.store.packs.pack_name import night_of
from stampede.store.parquet.writer import Range
from stampede.store.parquet.zstd import decompress
from stampede.telemetry import read_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

MOST_PAGE = len(KINDS) * MOST_IMAGE_BYTES + (1 << 10)
"""Most bytes of a page or of a tail, decompressed."""
PREFIX = 4  # bytes of the length before each value of a Parquet page


class Absent(StrEnum):
    """Why there is no image; the values are the names of the lists in `missing.json`."""

    NOT_SENT = "no_such_cutouts"
    GONE = "gone"
    DAMAGED = "damaged"


Location: TypeAlias = CutoutLocation | ThumbnailLocation
Parts: TypeAlias = tuple[memoryview, bytes]
"""A file in two parts: up to its tail, and its tail."""


class Images:
    """The images of a store.

    Parameters
    ----------
    days
        The setting `cutout_days`: retention deletes packs that many days after their night.
    cache_bytes
        Most bytes of tails to keep.

    Attributes
    ----------
    tails
        Those in memory, by pack and place.
    """

    def __init__(self, objects: Objects, days: int | None, cache_bytes: int) -> None:
        self._objects = objects
        self._days = days
        self.tails = Cache(cache_bytes)

    def fits(self, location: CutoutLocation) -> bytes:
        """The file of one cutout, as sent. Raises what `image` raises, and `NoSuchCutout`."""
        if location.pack is None:
            raise no_such_cutout(location.alert_id, location.kind)
        return self.image(location)

    def image(self, location: Location) -> bytes:
        """One image, verified.

        Raises
        ------
        Gone
            Retention has deleted the pack.
        DamagedImage
            The pack is not there, or has other bytes at this place than were stored.
        StoreDown
            The store does not answer.
        """
        for cached in (True, False):  # the second read tells a damaged object from a bad answer
            try:
                return verified(location, self._read(location, cached))
            except ValueError as error:
                fault = str(error)
        raise _damaged(location, fault)

    def many(
        self, locations: Sequence[CutoutLocation]
    ) -> Iterator[tuple[CutoutLocation, bytes | Absent]]:
        """The files of many cutouts as sent, verified, in the order of packs.

        One request reads adjacent pages, or tails. Cutouts that the survey did not send are left
        out. Raises `StoreDown`.
        """
        for pack, of_pack in _by_pack(locations):
            read: set[CutoutLocation] = set()
            try:
                # One page is unpacked at a time: what it unpacks to is bounded, the sum is not.
                for location, parts in self._of_pack(pack, of_pack):
                    read.add(location)
                    try:
                        yield location, verified(location, b"".join(parts))
                    except ValueError:
                        yield location, self._again(location)
                continue
            except Gone:
                reason = Absent.GONE
            except DamagedImage:
                reason = Absent.DAMAGED
            yield from ((location, reason) for location in of_pack if location not in read)

    def unverified(
        self, locations: Sequence[CutoutLocation]
    ) -> Iterator[tuple[CutoutLocation, Parts]]:
        """The files of cutouts as `many` gives them, for a caller that has a checksum of its own.

        Those that are not there are left out. Raises `StoreDown`.
        """
        for pack, of_pack in _by_pack(locations):
            with suppress(Gone, DamagedImage):
                yield from self._of_pack(pack, of_pack)

    def _of_pack(
        self, pack: str, locations: list[CutoutLocation]
    ) -> Iterator[tuple[CutoutLocation, Parts]]:
        """The cutouts in a pack, not verified. Raises `Gone`, `DamagedImage` if it is not there."""
        tails = self._many_tails(pack, (one.tail for one in locations if one.tail))
        by_page: dict[Range, list[CutoutLocation]] = defaultdict(list)
        for location in locations:
            by_page[location.page].append(location)
        for group in grouped_by_request(by_page):
            for page, data in self._pieces(pack, group):
                try:
                    content = decompress(data, MOST_PAGE)
                except ValueError:
                    content = b""
                for location in by_page[page]:
                    tail = tails.get(location.tail, b"") if location.tail else b""
                    yield location, parts_of(location, content, tail)

    def _pieces(self, pack: str, group: list[Range]) -> Iterator[tuple[Range, memoryview]]:
        """The bytes of ranges of a pack, read by one request."""
        first, last = group[0], group[-1]
        data = self._get(pack, first.offset, last.offset + last.length - first.offset)
        view = memoryview(data)
        for one in group:
            yield one, view[one.offset - first.offset :][: one.length]

    def _many_tails(self, pack: str, ranges: Iterable[Range]) -> dict[Range, bytes]:
        """Tails of a pack; damaged ones are left out."""
        wanted = set(ranges)
        found = {one: self.tails.get((pack, one)) for one in wanted}
        tails: dict[Range, bytes] = {one: tail for one, tail in found.items() if tail is not None}
        for group in grouped_by_request(wanted - tails.keys()):
            for one, data in self._pieces(pack, group):
                try:
                    tails[one] = self._keep(pack, one, data)
                except ValueError:
                    continue
        return tails

    def _read(self, location: Location, cached: bool) -> bytes:
        """The bytes of an image. Raises `ValueError` if what is read is damaged."""
        pack = location.pack or ""
        if isinstance(location, ThumbnailLocation):
            return self._get(pack, location.offset, location.length)
        tail = b""
        if location.tail:
            known = self.tails.get((pack, location.tail)) if cached else None
            tail = known or self._keep(pack, location.tail, self._get(pack, *location.tail))
        page = self._get(pack, *location.page)
        return b"".join(parts_of(location, decompress(page, MOST_PAGE), tail))

    def _keep(self, pack: str, place: Range, data: bytes | memoryview) -> bytes:
        """The tail in these bytes, put into the cache. Raises `ValueError` if it is damaged."""
        tail = decompress(data, MOST_PAGE)[PREFIX:]
        self.tails.put((pack, place), tail, len(tail))
        return tail

    def _again(self, location: CutoutLocation) -> bytes | Absent:
        """The image, read by requests of its own."""
        try:
            return self.image(location)
        except Gone:
            return Absent.GONE
        except DamagedImage:
            return Absent.DAMAGED

    def _get(self, pack: str, offset: int, length: int) -> bytes:
        """A part of a pack. Raises `Gone`, `DamagedImage`, `StoreDown`."""
        try:
            return self._objects.get(pack, offset, length)
        except NotFound:
            if not expired(pack, self._days, now_mjd()):
                read_metrics.DAMAGED_IMAGES.inc()
                log.error("a pack is missing", pack=pack)
                raise DamagedImage(
                    f"the pack {pack} is missing from the store: `stampede reconcile` restores it "
                    "if the second site has it"
                ) from None
            retention = f"images are kept for {self._days} days"
            night = night_of(pack)
            raise Gone(f"{retention}, and this one is of the night MJD {night}") from None


def _by_pack(locations: Iterable[CutoutLocation]) -> list[tuple[str, list[CutoutLocation]]]:
    """The cutouts that the survey sent, by pack."""
    by_pack: dict[str, list[CutoutLocation]] = defaultdict(list)
    for location in locations:
        if location.pack is not None:
            by_pack[location.pack].append(location)
    return sorted(by_pack.items())


def parts_of(location: CutoutLocation, page: bytes, tail: bytes) -> Parts:
    """A cutout out of its page, decompressed, and its tail."""
    end = location.start + max(0, location.length - len(tail))
    return memoryview(page)[location.start : end], tail


def verified(location: Location, data: bytes) -> bytes:
    """`data` if it is the image. Raises `ValueError`."""
    if len(data) != location.length:
        raise ValueError(f"it has {len(data)} of its {location.length} bytes")
    if isal_zlib.crc32(data) != location.crc32:
        raise ValueError("its CRC-32 is wrong")
    return data


def _damaged(location: Location, fault: str) -> DamagedImage:
    read_metrics.DAMAGED_IMAGES.inc()
    log.error("an image is damaged", pack=location.pack, alert=location.alert_id, fault=fault)
    return DamagedImage(
        f"an image of alert {location.alert_id} in {location.pack} is damaged: {fault}. "
        "`stampede reconcile` restores the pack if the second site has it"
    )
