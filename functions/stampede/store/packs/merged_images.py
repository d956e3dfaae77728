"""Merged packs of images: the pages of several packs in one, as they are.

The pages of cutouts are copied, not decompressed: a page has the cutouts of one message whatever
pack it is in. Tails that are the same bytes become one: alerts of a visit and detector share them,
and a batch has few of those. Thumbnails are PNGs, and copied too.
"""

from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged
from stampede.runtime import lazy_arrow_compute as pc
from stampede.runtime.decompression import Bytes
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.images import FITS, TAIL, ranges_array
from stampede.store.packs.pack import Content, Pack, footer_pairs, located, write_pack
from stampede.store.packs.pack_name import Merged
from stampede.store.packs.stored_images import StoredPage, stored_pages
from stampede.store.parquet import zstd
from stampede.store.parquet.checksums import seal
from stampede.store.parquet.writer import (
    DATA_PAGE,
    DICTIONARY_PAGE,
    Column,
    Page,
    indices,
    small,
    write,
)
from stampede.store.runs.merge import one_array
from stampede.store.runs.schema import CUTOUT_PACKS, THUMBNAIL_PACKS

_SMALL = CUTOUT_PACKS.rows.schema.names[:-1]
_KEPT = ("page_length", "start", "length", "tail_length", "crc32")  # places that do not change
_MESSAGE = ("alert_id", "survey", "message_crc32")


class Part(NamedTuple):
    """A pack to merge, and which of its rows to take: booleans of shape (rows,)."""

    content: Content
    wanted: np.ndarray


def coverage_of(parts: Iterable[Part]) -> Coverage:
    """The offsets of the parts that are taken whole.

    Rows do not say their offsets. What claims an offset must have its rows: a second site may have
    nothing else of them yet.
    """
    return Coverage.union(part.content.coverage for part in parts if part.wanted.all())


def merge_thumbnails(
    parts: Sequence[Part], programids: Iterable[int], merged: Merged, inputs: Sequence[str]
) -> Pack:
    """One pack of the thumbnails of several."""
    rows = pa.concat_tables(part.content.rows.filter(pa.array(part.wanted)) for part in parts)
    coverage = coverage_of(parts)
    return write_pack(rows, coverage, THUMBNAIL_PACKS, programids, merged, inputs)


def merge_cutouts(
    parts: Sequence[Part], programids: Iterable[int], merged: Merged, inputs: Sequence[str]
) -> Pack:
    """One pack of the cutouts of several; a message is taken whole, and once.

    Raises `Damaged` if the pages of a pack are not those of its messages.
    """
    pages = _in_order([page for number, part in enumerate(parts) for page in _pages(number, part)])
    rows, places = _rows_of(parts, pages)
    tails = _Tails(parts)
    numbers = pa.array([each for page in pages for each in tails.numbers(page)], pa.int32())
    schema = CUTOUT_PACKS.rows.schema
    absent = one_array(places["length"]).is_null().to_numpy(False)
    made = [Page(DATA_PAGE, [page.frame], page.body.unpacked, page.body.values) for page in pages]
    columns = [small(schema.field(name), one_array(rows[name])) for name in _SMALL]
    columns += [
        Column(FITS, made, nulls=int(absent.sum())),
        Column(TAIL, [tails.page(), indices(TAIL, numbers)], nulls=int(absent.sum())),
    ]
    coverage = coverage_of(parts)
    file = write(columns, rows.num_rows, footer_pairs(coverage, inputs))
    data = seal(file.data)
    bodies, [dictionary, _] = file.bodies[-2:]
    no_tail = one_array(places["tail_length"]).is_null().to_numpy(False)
    page_offset = np.repeat(ranges_array(bodies)[:, 0], [page.body.values for page in pages])
    tail_offset = tails.offsets(dictionary.offset)[pc.fill_null(numbers, 0).to_numpy()]
    found = {name: one_array(places[name]) for name in _KEPT} | {
        "page_offset": pa.array(page_offset, mask=absent),
        "tail_offset": pa.array(tail_offset, mask=no_tail),
    }
    whole = sha256(data).hexdigest()
    return located(rows, data, whole, found, CUTOUT_PACKS, programids, merged)


class _MessagePage(NamedTuple):
    """The page of a message: of which part, its first row there, its header and its bytes."""

    part: int
    first: int
    body: StoredPage
    frame: memoryview
    tails: Sequence[int | None]
    message: tuple[int, str, int]


def _pages(number: int, part: Part) -> Iterator[_MessagePage]:
    """The pages of a part that have a row which is wanted."""
    content, first = part.content, 0
    view = memoryview(content.pack.data).cast("B")
    tails = _one_dictionary(content.rows["tail"]).indices.to_pylist()
    values = [content.rows[name].to_pylist() for name in _MESSAGE]
    for body in stored_pages(content.file, "fits", view):
        if body.kind != DATA_PAGE:
            continue
        end = first + body.values
        keys = {tuple(column[row] for column in values) for row in range(first, end)}
        if len(keys) != 1:
            raise Damaged(f"{content.pack.key} has a page of several messages")
        if part.wanted[first:end].any():
            frame = view[body.body.offset :][: body.body.length]
            [(alert_id, survey, message)] = keys
            named = alert_id, survey, -1 if message is None else message
            yield _MessagePage(number, first, body, frame, tails[first:end], named)
        first = end


def _rows_of(parts: Sequence[Part], pages: Sequence[_MessagePage]) -> tuple[pa.Table, pa.Table]:
    """The small columns of the rows in pages, and the locations of their files in their packs."""
    starts = np.cumsum([0, *(part.content.rows.num_rows for part in parts)])
    firsts = [page.first + starts[page.part] for page in pages]
    numbers = np.concatenate(
        [
            np.arange(first, first + page.body.values)
            for first, page in zip(firsts, pages, strict=True)
        ]
    )
    rows = pa.concat_tables(part.content.rows.select(_SMALL) for part in parts)
    places = pa.concat_tables(part.content.pack.locations for part in parts)
    taken = pa.array(numbers)
    return rows.take(taken).combine_chunks(), places.take(taken).combine_chunks()


def _in_order(pages: Sequence[_MessagePage]) -> list[_MessagePage]:
    """The pages in the order of a pack, one of each message."""
    found: dict[tuple[int, str, int], _MessagePage] = {}
    for page in pages:
        found.setdefault(page.message, page)
    return [found[message] for message in sorted(found)]


class _Tails:
    """The distinct tails of the pages asked for, in that order.

    Equal tails are equal frames, if one version of `zstandard` made both; else both are kept.
    """

    def __init__(self, parts: Sequence[Part]) -> None:
        self._stored = [_tail_frames(part.content) for part in parts]
        self._known: dict[bytes, int] = {}
        self._frames: list[Bytes] = []
        self._sizes: list[int] = []

    def numbers(self, page: _MessagePage) -> Iterator[int | None]:
        """The number of the tail of each row of a page."""
        for number in page.tails:
            if number is None:
                yield None
                continue
            frame, content = self._stored[page.part][number]
            name = bytes(frame)
            if name not in self._known:
                self._known[name] = len(self._frames)
                self._frames.append(frame)
                self._sizes.append(content)
            yield self._known[name]

    def page(self) -> Page:
        """The dictionary."""
        frames = self._frames or [zstd.compress(b"")]
        return Page(DICTIONARY_PAGE, frames, sum(self._sizes), len(self._frames))

    def offsets(self, begin: int) -> np.ndarray:
        """Where each tail lies, if the dictionary begins there: at least one number."""
        lengths = [len(frame) for frame in self._frames] or [0]
        return begin + np.cumsum([0, *lengths[:-1]], dtype=np.int64)


def _tail_frames(content: Content) -> list[tuple[memoryview, int]]:
    """The frames of a pack's tails, and the bytes that each holds."""
    view = memoryview(content.pack.data).cast("B")
    found = []
    for page in stored_pages(content.file, "tail", view):
        if page.kind == DICTIONARY_PAGE:
            body = view[page.body.offset :][: page.body.length]
            found += [
                (body[frame.start :][: frame.length], frame.content)
                for frame in zstd.frames(body)
                if frame.content
            ]
    return found


def _one_dictionary(column: pa.ChunkedArray) -> pa.DictionaryArray:
    tail = column.combine_chunks()
    return tail.chunk(0) if isinstance(tail, pa.ChunkedArray) else tail
