"""The images of a pack: their pages, and where each image lies.

The files of a message's cutouts, up to their tails, are one page, compressed as one. Equal tails
are one entry of a dictionary, and each entry is compressed on its own. So one ranged GET reads the
cutouts of a message, and another a tail. PNGs are compressed already: each is a range of its pack.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from stampede.alerts.arrays import viewed
from stampede.alerts.columns import PACKED_CUTOUT, THUMBNAIL
from stampede.images.fits_tail import split
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.decompression import Bytes, is_gzip
from stampede.store.parquet import zstd
from stampede.store.parquet.writer import (
    DATA_PAGE,
    DICTIONARY_PAGE,
    Column,
    Page,
    Range,
    indices,
    levels,
    plain,
)

FITS, TAIL, _PNG = (
    *(PACKED_CUTOUT.field(name) for name in ("fits", "tail")),
    THUMBNAIL.field("png"),
)
A = TypeVar("A")
PREFIX = 4  # bytes of the length before each value


class Cutouts(NamedTuple):
    """The files of a pack's cutouts, cut.

    Attributes
    ----------
    heads
        For each row the file up to its tail; None where the survey sent no cutout.
    tails
        The distinct tails.
    numbers
        For each row which of the tails is its own, int32; null where the head is None.
    pages
        How many rows each page has.
    """

    heads: list[memoryview | None]
    tails: list[memoryview]
    numbers: pa.Array
    pages: list[int]


def cut(files: pa.Array, messages: np.ndarray) -> Cutouts:
    """Cut files; `messages` has a number for each row, equal in the rows of one message."""
    heads, tails = split(viewed(files))
    known: dict[tuple[int, int], int] = {}
    distinct: list[memoryview] = []
    numbers: list[int | None] = []
    for tail in tails:
        if tail is None:
            numbers.append(None)
            continue
        name = len(tail), isal_zlib.crc32(tail)
        number = known.get(name)
        if number is None or (tail and not _equal(distinct[number], tail)):
            number = known[name] = len(distinct)
            distinct.append(tail)
        numbers.append(number)
    ends = np.flatnonzero(np.append(messages[1:] != messages[:-1], len(messages) > 0)) + 1
    return Cutouts(
        heads, distinct, pa.array(numbers, pa.int32()), np.diff(ends, prepend=0).tolist()
    )


def cutout_columns(cutouts: Cutouts) -> list[Column]:
    """The columns `fits` and `tail`."""
    pages = []
    for heads in _by_page(cutouts.heads, cutouts.pages):
        sent = [head for head in heads if head is not None]
        body = [levels([head is not None for head in heads], FITS), *plain(sent)]
        size = sum(map(len, body))
        gzipped = all(map(is_gzip, sent))
        frame = zstd.stored(body) if gzipped else [zstd.compress(b"".join(body))]
        pages.append(Page(DATA_PAGE, frame, size, len(heads)))
    # An entry is a frame, so that it can be read alone.
    entries = [b"".join(plain([tail])) for tail in cutouts.tails]
    frames = [zstd.compress(entry) for entry in entries or [b""]]
    dictionary = Page(DICTIONARY_PAGE, frames, sum(map(len, entries)), len(entries))
    nulls = sum(head is None for head in cutouts.heads)
    return [
        Column(FITS, pages, nulls=nulls),
        Column(TAIL, [dictionary, indices(TAIL, cutouts.numbers)], nulls=nulls),
    ]


class Layout(NamedTuple):
    """The sizes of a pack's cutouts, row by row; that of a file which was not sent is 0.

    Attributes
    ----------
    absent
        Which files were not sent.
    heads, tails
        The bytes of each up to its tail, and of its tail.
    numbers
        Which of the distinct tails is its own.
    pages
        How many rows each page has.
    """

    absent: np.ndarray
    heads: np.ndarray
    tails: np.ndarray
    numbers: np.ndarray
    pages: Sequence[int]


def cutout_places(
    cutouts: Cutouts, pages: Sequence[Range], tails: Sequence[Range]
) -> dict[str, pa.Array]:
    """Columns of `CUTOUT_LOCATION`, from `page_offset` on.

    Parameters
    ----------
    pages, tails
        Where each page and each of the distinct tails lies in the pack.
    """
    heads, numbers = cutouts.heads, pc.fill_null(cutouts.numbers, 0).to_numpy()
    absent = absent_of(heads)
    tail_sizes = np.where(absent, 0, sizes_of(cutouts.tails or [b""])[numbers])
    checksums = [0 if head is None else isal_zlib.crc32(head) for head in heads]
    for row in np.flatnonzero(tail_sizes).tolist():
        checksums[row] = isal_zlib.crc32(cutouts.tails[numbers[row]], checksums[row])
    layout = Layout(absent, sizes_of(heads), tail_sizes, numbers, cutouts.pages)
    return places_of(layout, pages, tails, np.array(checksums, np.int64))


def places_of(
    layout: Layout, pages: Sequence[Range], tails: Sequence[Range], checksums: np.ndarray
) -> dict[str, pa.Array]:
    """The same from the sizes and the CRC-32 of the files."""
    absent, no_tail = layout.absent, layout.tails == 0
    page = np.repeat(ranges_array(pages), np.array(layout.pages, np.int64), axis=0)
    tail = ranges_array(tails or [Range(0, 0)])[layout.numbers]
    return {
        "page_offset": pa.array(page[:, 0], mask=absent),
        "page_length": pa.array(page[:, 1], mask=absent),
        "start": pa.array(_starts(layout), mask=absent),
        "length": pa.array(layout.heads + layout.tails, mask=absent),
        "tail_offset": pa.array(tail[:, 0], mask=no_tail),
        "tail_length": pa.array(tail[:, 1], mask=no_tail),
        "crc32": pa.array(checksums, mask=absent),
    }


def _starts(layout: Layout) -> np.ndarray:
    """Where each head begins in its page, decompressed; of a null where the next one does."""
    stored = np.where(layout.absent, 0, layout.heads + PREFIX)
    before = np.cumsum(stored) - stored
    counts = np.array(layout.pages, np.int64)
    starts = levels_sizes(layout.pages) + PREFIX
    begins: np.ndarray = before + np.repeat(starts - before[np.cumsum(counts) - counts], counts)
    return begins


def levels_sizes(pages: Sequence[int]) -> np.ndarray:
    """How many bytes say which values are null, in pages of so many rows."""
    known = {rows: len(levels([True] * rows, FITS)) for rows in {*pages}}
    return np.array([known[rows] for rows in pages], np.int64)


def absent_of(values: Sequence[memoryview | None]) -> np.ndarray:
    """Which values are None."""
    return np.array([value is None for value in values], bool)


def sizes_of(values: Sequence[Bytes | None]) -> np.ndarray:
    """The length of each; 0 of None."""
    return np.array([0 if value is None else len(value) for value in values], np.int64)


def ranges_array(ranges: Sequence[Range]) -> np.ndarray:
    """A row of offset and length for each."""
    return np.array(ranges, np.int64).reshape(-1, 2)


def tail_frames(body: memoryview, offset: int) -> list[Range]:
    """Where the tails lie in a pack, whose dictionary page has this body at this offset."""
    return [
        Range(offset + frame.start, frame.length) for frame in zstd.frames(body) if frame.content
    ]


def image_column(images: pa.Array) -> Column:
    """A column of images, one after the other in one page that is not compressed."""
    body = plain(image for image in viewed(images) if image is not None)
    page = Page(DATA_PAGE, body, sum(map(len, body)), len(images))
    return Column(_PNG, [page], compressed=False)


def image_places(images: pa.Array, offset: int, data: memoryview) -> dict[str, pa.Array]:
    """Columns of `THUMBNAIL_LOCATION`, from `offset` on; the images' page is at `offset`."""
    sizes = pc.binary_length(images).to_pylist()
    offsets = offset + np.cumsum(np.array(sizes, np.int64) + PREFIX) - sizes
    ranges = zip(offsets.tolist(), sizes, strict=True)
    checksums = [isal_zlib.crc32(data[start : start + size]) for start, size in ranges]
    return {
        "offset": pa.array(offsets, pa.int64()),
        "length": pa.array(sizes, pa.int32()),
        "crc32": pa.array(checksums, pa.uint32()),
    }


def _by_page(values: Sequence[A], pages: Sequence[int]) -> Iterator[Sequence[A]]:
    at = 0
    for rows in pages:
        yield values[at : at + rows]
        at += rows


def _equal(one: memoryview, other: memoryview) -> bool:
    """Whether bytes are equal. Python compares memoryviews byte by byte: a hundred times slower."""
    return bool(pa.py_buffer(one).equals(pa.py_buffer(other)))
