"""Reads cutouts out of one pack, by ranges; `docs/store.md` describes a pack.

A page has the cutouts of a message up to their tails, as one Zstandard frame; a tail is a frame of
its own. The CRC-32 of each file is checked before the file is used.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
from isal import isal_zlib
from isal.igzip_lib import IsalError

from stampede_client.errors import Damaged
from stampede_client.fits_planes import has_image

GAP, SPAN = 64 << 10, 8 << 20
"""Bytes between two ranges that one request may read in vain, and most bytes in one request."""
MOST_FILE = 64 << 20
"""Longest file and page to unpack, in bytes: a few damaged bytes can stand for gigabytes."""

MOST_MEMBERS = 32
"""Most members of a gzip file: each costs a copy of all that follow it."""
_GZIP = 31  # zlib's number of a gzip file with the largest window

Range = tuple[int, int]
Unpacked = bytes | memoryview | Damaged


class Place(NamedTuple):
    """Where a cutout is: a row of the table `cutouts`, and `number`, its row in the result."""

    number: int
    alert_id: int
    kind: str
    page_offset: int
    page_length: int
    start: int
    length: int
    tail_offset: int | None
    tail_length: int | None
    crc32: int


def heads(
    file: pa.NativeFile, places: Sequence[Place]
) -> Iterator[tuple[Place, memoryview | Damaged]]:
    """The file of each cutout up to its tail, unpacked; or why it cannot be believed.

    With its tail, if its image is there.

    Parameters
    ----------
    file
        The pack.
    places
        Cutouts in this pack, sorted by page.
    """
    tails: dict[Range, Unpacked] = {}
    wanted = {(p.tail_offset, p.tail_length or 0) for p in places if p.tail_offset is not None}
    for where, frame in _read(file, wanted):
        tails[where] = _unpacked(frame)
    by_page: dict[Range, list[Place]] = {}
    for place in places:
        by_page.setdefault((place.page_offset, place.page_length), []).append(place)
    for where, frame in _read(file, by_page):
        page = _unpacked(frame)
        for place in by_page[where]:
            yield place, _head(place, page, tails)


def _head(place: Place, page: Unpacked, tails: dict[Range, Unpacked]) -> memoryview | Damaged:
    tail: Unpacked = b""
    if place.tail_offset is not None:
        tail = tails[place.tail_offset, place.tail_length or 0]
    if isinstance(page, Damaged) or isinstance(tail, Damaged):
        return page if isinstance(page, Damaged) else tail  # type: ignore[return-value]
    after = memoryview(tail)[4:]  # its length comes first
    head = memoryview(page)[place.start : place.start + place.length - len(after)]
    if isal_zlib.crc32(after, isal_zlib.crc32(head)) != place.crc32:
        return Damaged("its bytes do not have the CRC-32 in the table `cutouts`")
    if bytes(head[:2]) != b"\x1f\x8b":
        return head if not len(after) or has_image(head) else memoryview(bytes(head) + after)
    return _gunzipped(head)


def _gunzipped(file: memoryview) -> memoryview | Damaged:
    """The content of a gzip file: of all its members (RFC 1952, 2.2), with nothing behind them."""
    pieces: list[bytes] = []
    rest: bytes | memoryview = file
    room = MOST_FILE
    for _ in range(MOST_MEMBERS):
        member = isal_zlib.decompressobj(_GZIP)
        try:
            pieces.append(member.decompress(rest, room + 1))
        except IsalError as error:  # type: ignore[misc]  # its stub forgets the base class
            return Damaged(f"the gzip file of the survey is damaged: {error}")
        room -= len(pieces[-1])
        if room < 0:
            return Damaged(f"the gzip file of the survey unpacks to more than {MOST_FILE:,} bytes")
        if not member.eof:
            return Damaged("the gzip file of the survey is cut short")
        rest = member.unused_data
        if not rest:
            return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))
    return Damaged(f"the gzip file of the survey has more than {MOST_MEMBERS} members")


def _read(file: pa.NativeFile, ranges: Iterable[Range]) -> Iterator[tuple[Range, memoryview]]:
    """The bytes of each range, in order; ranges side by side in one request."""
    group: list[Range] = []
    size = file.size()
    for one in [*sorted(ranges), None]:
        if group and (
            one is None or one[0] - sum(group[-1]) > GAP or sum(one) - group[0][0] > SPAN
        ):
            begin = min(group[0][0], size)  # a pack that is cut short has no bytes there
            data = memoryview(file.read_at(min(max(map(sum, group)), size) - begin, begin))
            for where in group:
                yield where, data[where[0] - begin :][: where[1]]
            group = []
        if one is not None:
            group.append(one)


def _unpacked(frame: memoryview) -> Unpacked:
    """What a Zstandard frame holds (RFC 8878, 3.1.1.1): Arrow must know how much it is."""
    if bytes(frame[:4]) != b"\x28\xb5\x2f\xfd" or len(frame) < 14:
        return Damaged("no page of a pack begins where the table `cutouts` says")
    flags = frame[4]
    at = 5 + (not flags & 32) + (0, 1, 2, 4)[flags & 3]
    width = (flags >> 5 & 1, 2, 4, 8)[flags >> 6]
    size = int.from_bytes(frame[at : at + width], "little") + 256 * (width == 2)
    if size > MOST_FILE:
        return Damaged(f"its page would unpack to {size:,} bytes")
    block = frame[at + width :]
    if int.from_bytes(block[:3], "little") == size << 3 | 1:  # one block, not compressed
        return block[3:]
    try:
        found: bytes = _ZSTD.decompress(pa.py_buffer(frame), size, asbytes=True)
    except (pa.ArrowException, OSError) as error:
        return Damaged(f"its page cannot be unpacked: {error}")
    return found


_ZSTD = pa.Codec("zstd")
