"""Images in packs: read by byte range, and verified before they are believed.

An image is right if it has the length and the CRC-32 of its location row. Rows written before they
had a CRC-32 leave the check to the file itself: gzip ends with a CRC-32 of what it holds.
"""

from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import TypeAlias

import structlog
from isal import isal_zlib

from stampede import metrics
from stampede.alerts.surveys import surveys
from stampede.clock import now_mjd
from stampede.errors import NotFound
from stampede.images.fits import BadImage, unpack
from stampede.read.errors import DamagedImage, Gone
from stampede.read.locations import (
    CutoutLocation,
    ThumbnailLocation,
    grouped_by_request,
    no_such_cutout,
)
from stampede.store.objects import Objects
from stampede.store.packs import expired, night_of

log = structlog.get_logger()


class Absent(StrEnum):
    """Why there is no image; the values are the names of the lists in `missing.json`."""

    NOT_SENT = "no_such_cutouts"
    GONE = "gone"
    DAMAGED = "damaged"


Location: TypeAlias = CutoutLocation | ThumbnailLocation


class Images:
    """The images of a store.

    Parameters
    ----------
    days
        The setting `cutout_days`: retention deletes packs that many days after their night.
    """

    def __init__(self, objects: Objects, days: int | None) -> None:
        self._objects = objects
        self._days = days

    def fits(self, location: CutoutLocation) -> bytes:
        """The gzipped FITS file of one cutout. Raises what `image` raises, and `NoSuchCutout`."""
        if location.pack is None:
            raise no_such_cutout(location.alert_id, location.kind)
        return self.image(location)

    def as_sent(self, location: CutoutLocation) -> bytes:
        """The image of one cutout, byte for byte as the survey sent it. Raises as `fits`."""
        return as_sent(location.survey, self.fits(location))

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
        for _ in range(2):  # the second read tells a damaged object from a damaged answer
            data = self._get(location.pack or "", location.offset, location.length)
            fault = _fault(location, data)
            if fault is None:
                return data
        raise _damaged(location, fault or "")

    def many(
        self, locations: Sequence[CutoutLocation]
    ) -> Iterator[tuple[CutoutLocation, bytes | Absent]]:
        """The gzipped FITS files of many cutouts, verified, in the order of packs.

        One request reads adjacent cutouts. Cutouts that the survey did not send are left out.
        Raises `StoreDown`.
        """
        for pack, group in grouped_by_request(locations):
            start, last = group[0].offset, group[-1]
            try:
                data = memoryview(self._get(pack, start, last.offset + last.length - start))
            except Gone:
                yield from ((location, Absent.GONE) for location in group)
                continue
            except DamagedImage:
                yield from ((location, Absent.DAMAGED) for location in group)
                continue
            for location in group:
                first = location.offset - start
                image = bytes(data[first : first + location.length])
                yield location, image if _fault(location, image) is None else self._again(location)

    def _again(self, location: CutoutLocation) -> bytes | Absent:
        """The image, read by a request of its own."""
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
                metrics.DAMAGED_IMAGES.inc()
                log.error("a pack is missing", pack=pack)
                raise DamagedImage(
                    f"the pack {pack} is missing from the store: `stampede reconcile` restores it "
                    "if the second site has it"
                ) from None
            retention = f"images are kept for {self._days} days"
            night = night_of(pack)
            raise Gone(f"{retention}, and this one is of the night MJD {night}") from None


def as_sent(survey: str, file: bytes) -> bytes:
    """What a survey sent of an image, by its gzip file: that file, or what is packed in it."""
    magic = {each.NAME: each.IMAGE_MAGIC for each in surveys()}[survey]
    return file if file.startswith(magic) else unpack(file)


def _fault(location: Location, data: bytes) -> str | None:
    """What is wrong with these bytes of an image; None if nothing is."""
    if len(data) != location.length:
        return f"the pack ends after {len(data)} of its {location.length} bytes"
    if location.crc32 is not None:
        return None if isal_zlib.crc32(data) == location.crc32 else "its CRC-32 is wrong"
    try:
        unpack(data)
    except BadImage as error:
        return error.message
    return None


def _damaged(location: Location, fault: str) -> DamagedImage:
    metrics.DAMAGED_IMAGES.inc()
    log.error("an image is damaged", pack=location.pack, offset=location.offset, fault=fault)
    return DamagedImage(
        f"an image of alert {location.alert_id} in {location.pack} is damaged: {fault}. "
        "`stampede reconcile` restores the pack if the second site has it"
    )
