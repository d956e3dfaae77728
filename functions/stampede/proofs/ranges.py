"""Digests of ranges of ids, by which two archives find the few entries that differ.

Ranges are named by the ids at which they begin, so that both sides cut alike whatever they hold:
one archive's ids divide the other's entries too. The digest of a range is the root of the tree over
its entries alone.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from stampede.proofs.leaves import RootOf, ids_of
from stampede.proofs.merkle_tree import EMPTY

MOST = 100_000
"""Ranges of one request."""
MOST_BYTES = 20 * MOST
"""Bytes of its body."""
MOST_ENTRIES = 100_000
"""Entries of one answer."""


def begins_of(ids: np.ndarray, count: int) -> list[int]:
    """The ids at which ranges of about so many entries begin, all but the first range."""
    found: list[int] = np.unique(ids[count::count]).tolist()
    return found


def slices_of(entries: np.ndarray, begins: Sequence[int]) -> list[slice]:
    """Where the entries of each range are: one more than `begins`, which ascend."""
    places = ids_of(entries).searchsorted(np.array(begins, np.int64), "left").tolist()
    return [
        slice(one, other) for one, other in zip([0, *places], [*places, len(entries)], strict=True)
    ]


def digests_of(pieces: Iterable[np.ndarray], begins: Sequence[int]) -> list[bytes]:
    """The digest of each range of entries, which come in pieces, in order."""
    firsts, found, current = np.array(begins, np.int64), list[bytes](), RootOf()
    for piece in pieces:
        at = 0
        for begin in ids_of(piece).searchsorted(firsts[len(found) :], "left").tolist():
            if begin == len(piece):  # this range begins in a later piece
                break
            current.add(piece[at:begin])
            found.append(current.root)
            current, at = RootOf(), begin
        current.add(piece[at:])
    found.append(current.root)
    return found + [EMPTY] * (len(begins) + 1 - len(found))


def text_of(begins: Sequence[int]) -> bytes:
    """The ids at which ranges begin as the body of a request: decimal, white space between them."""
    return " ".join(map(str, begins)).encode()


def parse(body: bytes) -> list[int]:
    """The ids in the body of a request. Raises `ValueError` if they are none, or not ascending."""
    begins = [int(text) for text in body.split()]
    if len(begins) > MOST:
        raise ValueError(f"more than {MOST:,} ranges")
    if any(not 0 <= each < 1 << 63 for each in begins):
        raise ValueError("an id has 63 bits")
    if any(one >= other for one, other in pairwise(begins)):
        raise ValueError("the ids do not ascend")
    return begins
