"""Small images read on the event loop: the way to a thread and back takes longer than the GET.

Only what is sound is served. Of anything else - an error, damage, a large page - `Images` finds
out more, in a thread.
"""

import asyncio
from typing import Protocol

from stampede.lookup.packs.images import PREFIX, Location, parts_of, verified
from stampede.lookup.packs.locations import CutoutLocation, ThumbnailLocation
from stampede.store.objects.lru_cache import Cache
from stampede.store.parquet.writer import Range
from stampede.store.parquet.zstd import decompress

MOST_BYTES = 256 << 10
"""Most bytes of a GET. A page of LSST's largest cutouts, 102 x 102 pixels, has 0.2 MB."""
MOST_CONTENT = 512 << 10
"""Most bytes of a page, decompressed: the event loop waits 0.1 ms for it."""
PAGES_BYTES = 4 << 20
"""Pages that are kept, decompressed: who takes one cutout of an alert soon takes the others."""


class AsyncGets(Protocol):
    """Ranged GETs for an event loop."""

    async def get(self, key: str, start: int, length: int) -> bytes | None:
        """The bytes of a range, or None: then a blocking GET says why."""

    async def close(self) -> None:
        """Give up what is under way."""


class QuickImages:
    """Images of a store. Used on the event loop alone, so no lock.

    Requests that need the same page at the same time share one GET.

    Parameters
    ----------
    gets
        None: the store has none, and there is no quick image.
    tails
        The tails that are in memory; those that are read here are added.
    """

    def __init__(self, gets: AsyncGets | None, tails: Cache) -> None:
        self._gets = gets
        self._tails = tails
        self._pages = Cache(PAGES_BYTES)
        self._under_way: dict[tuple[str, Range], asyncio.Future[bytes | None]] = {}

    async def image(self, location: Location) -> bytes | None:
        """One image, verified; None if `Images.image` must read it."""
        try:
            if isinstance(location, ThumbnailLocation):
                data = await self._get(location.pack, Range(location.offset, location.length))
                return None if data is None else verified(location, data)
            return await self._cutout(location)
        except ValueError:
            return None

    async def close(self) -> None:
        """Close the connections to the store."""
        if self._gets:
            await self._gets.close()

    async def _cutout(self, location: CutoutLocation) -> bytes | None:
        """The file of a cutout. Raises `ValueError` if what is read is damaged."""
        pack = location.pack or ""
        tail = self._tails.get((pack, location.tail)) if location.tail else b""
        if tail is None and location.tail:
            page, of_tail = await asyncio.gather(
                self._content(pack, location.page), self._content(pack, location.tail)
            )
            tail = None if of_tail is None else of_tail[PREFIX:]
        else:
            page = await self._content(pack, location.page)
        if page is None or tail is None:
            return None
        file = verified(location, b"".join(parts_of(location, page, tail)))
        self._pages.put((pack, location.page), page, len(page))
        if location.tail:
            self._tails.put((pack, location.tail), tail, len(tail))
        return file

    async def _content(self, pack: str, place: Range) -> bytes | None:
        """What the frame at a place of a pack holds. None or `ValueError` if it is damaged."""
        known: bytes | None = self._pages.get((pack, place))
        if known is not None:
            return known
        if under_way := self._under_way.get((pack, place)):
            return await asyncio.shield(under_way)  # a request that is cancelled ends no other's
        result = self._under_way[pack, place] = asyncio.get_running_loop().create_future()
        content = None
        try:
            content = await self._unpacked(pack, place)
        finally:
            del self._under_way[pack, place]
            result.set_result(content)
        return content

    async def _unpacked(self, pack: str, place: Range) -> bytes | None:
        data = await self._get(pack, place)
        return None if data is None else decompress(data, MOST_CONTENT)

    async def _get(self, pack: str, place: Range) -> bytes | None:
        if self._gets is None or place.length > MOST_BYTES:
            return None
        return await self._gets.get(pack, place.offset, place.length)
