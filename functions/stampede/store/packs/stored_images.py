"""The images of a pack from its bytes: the inverse of what `images` writes.

The bytes are those that the digest in the pack's name proves, or each page is held to its CRC-32.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from stampede.alerts.arrays import viewed
from stampede.errors import Damaged
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.packs.images import (
    FITS,
    PREFIX,
    Cutouts,
    Layout,
    absent_of,
    levels_sizes,
    places_of,
    sizes_of,
    tail_frames,
)
from stampede.store.parquet import zstd
from stampede.store.parquet.checksums import FileMetaData
from stampede.store.parquet.thrift import read_struct
from stampede.store.parquet.writer import DATA_PAGE, DICTIONARY_PAGE, Range, levels
from stampede.store.runs.merge import one_array

_MOST_PAGE = 1 << 30  # bytes of a page, decompressed


def stored_cutouts(
    rows: pa.Table, file: FileMetaData, data: memoryview
) -> tuple[Cutouts, list[Range], list[Range]]:
    """The cutouts of a pack from its bytes, and where their pages and their tails lie.

    Parameters
    ----------
    rows
        `PACKED_CUTOUT`, where `tail` is a dictionary; `fits` is not needed.

    Raises
    ------
    Damaged, ValueError, IndexError
        The bytes are not those of a pack.
    """
    heads: list[memoryview | None] = []
    pages = [page for page in stored_pages(file, "fits", data) if page.kind == DATA_PAGE]
    for page in pages:
        heads += _stored_heads(data[page.body.offset :][: page.body.length], page.values)
    numbers, entries, tails = stored_tails(rows, file, data)
    if (~absent_of(heads) & numbers.is_null().to_numpy(zero_copy_only=False)).any():
        raise Damaged("an image has no number of its tail")
    cutouts = Cutouts(heads, entries, numbers, [page.values for page in pages])
    return cutouts, [page.body for page in pages], tails


def claimed_places(
    rows: pa.Table, claims: pa.Table, file: FileMetaData, data: memoryview
) -> dict[str, pa.Array] | None:
    """The columns of `cutout_places` as rows of the table claim; None if they do not fit the pack.

    No page is decompressed. So the checksums of the files are not compared, and the sizes of the
    files in a page only with the page's.

    Parameters
    ----------
    rows
        As of `stored_cutouts`.
    claims
        A row of the table `cutouts` for each of `rows`, in their order.

    Raises as `stored_cutouts`.
    """
    numbers, entries, tails = stored_tails(rows, file, data)
    pages = [page for page in stored_pages(file, "fits", data) if page.kind == DATA_PAGE]
    absent = claims["pack"].is_null().to_numpy()
    number = pc.fill_null(numbers, 0).to_numpy()
    of_tails = np.where(absent, 0, sizes_of(entries or [b""])[number])
    lengths = pc.fill_null(claims["length"], 0).to_numpy().astype(np.int64)
    layout = Layout(absent, lengths - of_tails, of_tails, number, [page.values for page in pages])
    if sum(layout.pages) != rows.num_rows or (numbers.is_valid().to_numpy(False) == absent).any():
        return None
    stored = np.where(absent, 0, layout.heads + PREFIX)
    ends = np.cumsum(layout.pages)
    sums = np.diff(np.append(0, np.cumsum(stored))[np.append(0, ends)])
    if (sums + levels_sizes(layout.pages) != [page.unpacked for page in pages]).any():
        return None
    checksums = pc.fill_null(claims["crc32"], 0).to_numpy().astype(np.int64)
    places = places_of(layout, [page.body for page in pages], tails, checksums)
    alike = (
        place.equals(one_array(claims[name]).cast(pa.int64())) for name, place in places.items()
    )
    return places if (layout.heads >= 0).all() and all(alike) else None


def stored_tails(
    rows: pa.Table, file: FileMetaData, data: memoryview
) -> tuple[pa.Array, list[memoryview], list[Range]]:
    """For each row the number of its tail; the distinct tails; and where they lie."""
    tail = rows["tail"].combine_chunks()
    tail = tail.chunk(0) if isinstance(tail, pa.ChunkedArray) else tail
    entries = [view for view in viewed(tail.dictionary) if view is not None]
    tails = [
        frame
        for page in stored_pages(file, "tail", data)
        if page.kind == DICTIONARY_PAGE
        for frame in tail_frames(data[page.body.offset :][: page.body.length], page.body.offset)
    ]
    return tail.indices, entries, tails


def stored_frames(
    rows: pa.Table, file: FileMetaData, data: memoryview
) -> Iterator[tuple[int, bytes, bytes | None]]:
    """For each row its number in its page, and digests of the page and of the tail's frame.

    Parameters as of `stored_cutouts`; raises as that does.
    """
    numbers, _, tails = stored_tails(rows, file, data)
    digests = [sha256(data[place.offset :][: place.length]).digest() for place in tails]
    tail = iter(numbers.to_pylist())
    for page in stored_pages(file, "fits", data):
        if page.kind == DATA_PAGE:
            whole = sha256(data[page.body.offset :][: page.body.length]).digest()
            for row in range(page.values):
                number = next(tail)
                yield row, whole, None if number is None else digests[number]


def _stored_heads(page: memoryview, rows: int) -> Iterator[memoryview | None]:
    """The values of a page of the column `fits`, as they lie in it.

    Arrow would decompress every page once more, and copy it. Raises `ValueError` if these are not
    the values of so many rows.
    """
    content = memoryview(zstd.decompress(page, _MOST_PAGE))
    at = len(levels([True] * rows, FITS))
    for there in _stored_levels(bytes(content[:at]), rows):
        if there:
            begin = at + PREFIX
            at = begin + int.from_bytes(content[at:begin], "little")
            yield content[begin:at]
        else:
            yield None
    if at != len(content):
        raise ValueError("a page does not have the images that its header says")


@lru_cache
def _stored_levels(stored: bytes, rows: int) -> list[bool]:
    """The inverse of `levels`. Raises `ValueError` if it is of no such page."""
    bits = np.frombuffer(stored[len(stored) - (rows + 7) // 8 :], np.uint8)
    found: list[bool] = np.unpackbits(bits, bitorder="little")[:rows].astype(bool).tolist()
    if levels(found, FITS) != stored:
        raise ValueError("a page does not say which images it has")
    return found


def cutouts_at(data: memoryview, places: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """The files of cutouts that the survey sent, from the bytes of their pack.

    Parameters
    ----------
    places
        Rows of `CUTOUT_LOCATION`.

    Raises `ValueError` if no files lie there.
    """
    frames: dict[Range, bytes] = {}

    def content(offset: int, length: int) -> bytes:
        place = Range(offset, length)
        if place not in frames:
            frames[place] = zstd.decompress(data[offset:][:length], _MOST_PAGE)
        return frames[place]

    files = []
    for place in places:
        tail = b""
        if place["tail_offset"] is not None:
            tail = content(place["tail_offset"], place["tail_length"])[PREFIX:]
        page = content(place["page_offset"], place["page_length"])
        files.append(page[place["start"] :][: place["length"] - len(tail)] + tail)
    return files


def stored_images(file: FileMetaData, data: memoryview) -> int:
    """Where the page of a pack's images begins."""
    return next((page.body.offset for page in stored_pages(file, "png", data)), 0)


class StoredPage(NamedTuple):
    """A page: its type, number of values, size decompressed, and where the body lies."""

    kind: int
    values: int
    unpacked: int
    body: Range


def stored_pages(file: FileMetaData, name: str, data: memoryview) -> Iterator[StoredPage]:
    """The pages of a column.

    Raises `ValueError` for one that does not have its CRC-32.
    """
    if not file.num_row_groups:
        return
    column = file.row_group(0).column(file.schema.names.index(name))
    at = column.dictionary_page_offset or column.data_page_offset
    end = at + column.total_compressed_size
    while at < end:
        header, at = read_struct(data, at)
        described = header[7 if header[1] == DICTIONARY_PAGE else 5]
        if header[4] % (1 << 32) != isal_zlib.crc32(data[at : at + header[3]]):
            raise ValueError(f"a page of {name} does not have its checksum")
        yield StoredPage(header[1], described[1], header[2], Range(at, header[3]))
        at += header[3]
