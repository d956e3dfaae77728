"""Images read by the rows that locate them, with no code of the store."""

from collections.abc import Mapping
from typing import Any

import cramjam

from stampede.store.objects.object_store import Objects


def image_in(data: bytes | memoryview, place: Mapping[str, Any]) -> bytes | None:
    """The image in a pack at a row of `cutouts` or `thumbnails`; None if it has none."""
    if place["pack"] is None:
        return None
    view = memoryview(data).cast("B")
    if "offset" in place:
        return bytes(view[place["offset"] :][: place["length"]])
    page = _unpacked(view, place["page_offset"], place["page_length"])
    tail = b""
    if place["tail_offset"] is not None:
        tail = _unpacked(view, place["tail_offset"], place["tail_length"])[4:]
    return page[place["start"] :][: place["length"] - len(tail)] + tail


def stored_image(objects: Objects, place: Mapping[str, Any]) -> bytes | None:
    """The image in the store at a row of `cutouts` or `thumbnails`; None if it has none."""
    return image_in(objects.get(place["pack"]), place) if place["pack"] else None


def _unpacked(data: memoryview, offset: int, length: int) -> bytes:
    return bytes(cramjam.zstd.decompress(data[offset : offset + length]))
