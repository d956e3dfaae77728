"""Which objects of a night to merge, once no more alerts of it are likely to come.

A function writes an object for each batch: some thousand a night, for ever. Merged ones have 64 MB.
The objects of a night are merged in the order in which they were stored: so the alerts of a visit
meet, which share the tails of their cutouts. A merged object of that size is never merged again.

The plan needs names, sizes and times alone. docs/adr/0072-merged-nights.md has the reasons.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence

from stampede.store.objects.object_store import ObjectInfo
from stampede.store.packs.pack_name import level_of
from stampede.store.programmes.keys import programids_of

TARGET_BYTES = 64 << 20
"""A merge ends with the object by which it has so many bytes; all are in memory."""
MOST_OBJECTS = 256
"""In one merge: of a slow stream objects are small, and each costs a request."""
MOST_LEVEL = 9
"""What was merged so often is left alone: rows of packs compare the names of levels as text."""
SMALL_PART = 8
"""A merge must add an eighth to the largest of its objects: else late alerts cost too much."""


def due_merges(
    objects: Iterable[ObjectInfo], waiting: Collection[str] = ()
) -> list[list[ObjectInfo]]:
    """The merges that are due among the objects of one folder; each has two or more.

    Only objects of the same observing programmes are merged with each other.

    Parameters
    ----------
    waiting
        Keys of objects that were merged, and are kept for a while.
    """
    alike: dict[frozenset[int], list[ObjectInfo]] = defaultdict(list)
    for info in objects:
        small = info.size < TARGET_BYTES and level_of(info.key) < MOST_LEVEL
        if small and info.key not in waiting:
            alike[programids_of(info.key)].append(info)
    merges: list[list[ObjectInfo]] = []
    for _, found in sorted(alike.items(), key=lambda pair: sorted(pair[0])):
        found.sort(key=lambda info: (level_of(info.key), info.modified, info.key))
        for group in _groups(found):
            if len(group := _worth(group)) > 1:
                merges.append(group)
    return merges


def _groups(objects: Sequence[ObjectInfo]) -> Iterator[list[ObjectInfo]]:
    """The objects in their order, each group as large as a merge is."""
    group: list[ObjectInfo] = []
    size = 0
    for info in objects:
        group.append(info)
        size += info.size
        if len(group) == MOST_OBJECTS or size >= TARGET_BYTES:
            yield group
            group, size = [], 0
    if group:
        yield group


def _worth(group: list[ObjectInfo]) -> list[ObjectInfo]:
    """A group without the largest objects to which the others add too little."""
    left = sorted(group, key=lambda info: info.size)
    rest = sum(info.size for info in left[:-1])
    while left and rest * SMALL_PART < left[-1].size:
        left.pop()
        rest -= left[-1].size if left else 0
    return [info for info in group if info in left]
