"""Which packs of packets to merge: those of a night, then those of some nights, by object.

The packets of an object repeat its history. Together in a page they take a tenth of what each
takes alone. So the packs of a night are merged once no more alerts of it are likely to come, and
those of `WINDOW` nights after the last of them. A merged pack holds a slice of the objects: those
whose hash begins with certain bits (`store/packs/packets.py`). So a merge of large packs reads few
of them, whatever the survey's size.

The plan needs the names and sizes of packs alone. It keeps no state: `packet_merge.py` finds by the
rows what was merged and is not deleted yet. docs/adr/0070-merged-packets.md has the reasons.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from stampede.store.objects.object_store import ObjectInfo
from stampede.store.packs.pack_name import PackName

WINDOW = 30
"""Nights whose packs are merged with each other. Windows begin at multiples of it, in MJD."""
MOST_PACKS = 64
"""Packs in one merge: it holds a page or two of each in memory."""
SMALL_PART = 8
"""A merge must add an eighth to the largest of its packs: else late alerts cost too much."""


class Source(NamedTuple):
    """A pack that may be merged."""

    info: ObjectInfo
    name: PackName


def window_of(night: int, nights: int = WINDOW) -> range:
    """The nights that are merged with a night."""
    first = night // nights * nights
    return range(first, first + nights)


def window_nights(packet_days: int | None) -> int:
    """How many nights are merged: with a retention so few that it keeps nothing a tenth longer."""
    return WINDOW if packet_days is None else max(1, min(WINDOW, packet_days // 10))


def due_merges(packs: Iterable[ObjectInfo], settled: int, nights: int) -> list[list[Source]]:
    """The merges that are due among the packs of one window; each has two packs or more.

    Parameters
    ----------
    settled
        The first night to which alerts may still come.
    nights
        As `window_nights` returns them.
    """
    by_programmes: dict[frozenset[int], list[Source]] = defaultdict(list)
    for info in packs:
        name = PackName.parse(info.key)
        if name and name.night < settled:
            by_programmes[name.programids].append(Source(info, name))
    merges: list[list[Source]] = []
    for _, sources in sorted(by_programmes.items(), key=lambda pair: sorted(pair[0])):
        of_nights = _of_nights(sources)
        waiting = {source.info.key for some in of_nights for source in some}
        rest = [source for source in sources if source.info.key not in waiting]
        merges += of_nights
        # A pack that cannot be merged must not keep the others of its window apart.
        if _bytes(rest) * SMALL_PART >= _bytes(sources) * (SMALL_PART - 1):
            merges += _of_window(rest, settled, nights)
    return merges


def due_in_night(packs: Iterable[ObjectInfo]) -> list[list[Source]]:
    """The merges of packs as functions wrote them, among the packs of one night that is settled."""
    by_programmes: dict[frozenset[int], list[Source]] = defaultdict(list)
    for info in packs:
        if name := PackName.parse(info.key):
            by_programmes[name.programids].append(Source(info, name))
    found = sorted(by_programmes.items(), key=lambda pair: sorted(pair[0]))
    return [merge for _, sources in found for merge in _of_nights(sources)]


def worth_merging(sources: Iterable[Source]) -> list[Source]:
    """Those packs of a merge that are still to be merged, without those that lost all rows."""
    left = _overlapping(list(sources))
    raw = not any(source.name.merged for source in left)
    return left if len(left) > 1 and (raw or _pays(left)) else []


def common_slice(sources: Iterable[Source]) -> str:
    """The bits that the hashes of all objects in these packs begin with."""
    slices = [source.name.slice for source in sources]
    least, greatest = min(slices), max(slices)
    length = 0
    while least[length : length + 1] == greatest[length : length + 1] != "":
        length += 1
    return least[:length]


def _of_nights(sources: Iterable[Source]) -> list[list[Source]]:
    """Merges of packs as functions wrote them, of one night each."""
    by_night: dict[int, list[Source]] = defaultdict(list)
    for source in sources:
        if not source.name.merged:
            by_night[source.name.night].append(source)
    return [
        some for _, night in sorted(by_night.items()) for some in _divided(night) if len(some) > 1
    ]


def _of_window(sources: list[Source], settled: int, nights: int) -> list[list[Source]]:
    """Merges of the packs of a window's nights, once it is over."""
    if not sources or window_of(sources[0].name.night, nights).stop > settled:
        return []
    merges: list[list[Source]] = []
    while sources:
        depth = _depth(sources)
        by_slice: dict[str, list[Source]] = defaultdict(list)
        coarse: list[Source] = []
        for source in sources:
            bits = source.name.slice
            (by_slice[bits[:depth]] if len(bits) >= depth else coarse).append(source)
        for _, group in sorted(by_slice.items()):
            merges += [some for some in _divided(_overlapping(group)) if _pays(some)]
        sources = coarse
    return merges


def _depth(sources: list[Source]) -> int:
    """The most bits such that packs of coarser slices have an eighth of the bytes at most."""
    total, depth, coarser = _bytes(sources), 0, 0
    while depth < max(len(source.name.slice) for source in sources):
        coarser += _bytes(each for each in sources if len(each.name.slice) == depth)
        if coarser * SMALL_PART > total:
            break
        depth += 1
    return depth


def _overlapping(group: list[Source]) -> list[Source]:
    """Those packs of which another one may hold the same objects."""
    group = sorted(group, key=lambda source: source.name.slice)
    found = []
    for source in group:
        bits = source.name.slice
        others = (other.name.slice for other in group if other is not source)
        if any(other.startswith(bits) or bits.startswith(other) for other in others):
            found.append(source)
    return found


def _divided(group: Iterable[Source]) -> list[list[Source]]:
    """Packs, by at most `MOST_PACKS`: the least merged ones first, together."""
    group = sorted(group, key=lambda source: (source.name.level, source.info.key))
    return [group[first : first + MOST_PACKS] for first in range(0, len(group), MOST_PACKS)]


def _bytes(sources: Iterable[Source]) -> int:
    return sum(source.info.size for source in sources)


def _pays(group: list[Source]) -> bool:
    """Whether a merge adds enough to its largest pack."""
    sizes = [source.info.size for source in group]
    return len(group) > 1 and (sum(sizes) - max(sizes)) * SMALL_PART >= max(sizes)
