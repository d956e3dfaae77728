"""The Merkle tree of RFC 6962, section 2.1: a root proves that an entry is among many.

SHA-256 of a byte 0 and an entry is the hash of a leaf, that of a byte 1 and two hashes the hash of
a node. Here the nodes of a level are paired from the left, and one without a partner rises: that is
the tree of the RFC, which splits n entries at the largest power of two below n.
"""

from collections.abc import Sequence
from hashlib import sha256

EMPTY = sha256().digest()
"""The root of no entries."""


def leaf_hash(entry: bytes) -> bytes:
    """The hash of an entry."""
    return sha256(b"\0" + entry).digest()


def root_of(hashes: Sequence[bytes]) -> bytes:
    """The root over the hashes of leaves, or over those of subtrees of one power of two of leaves.

    Only the last subtree may have fewer leaves.
    """
    level = list(hashes) or [EMPTY]
    while len(level) > 1:
        level = _above(level)
    return level[0]


def path_of(hashes: Sequence[bytes], number: int) -> list[bytes]:
    """The hashes beside the way from a leaf, or a subtree, to the root of `hashes`, upwards."""
    level, path = list(hashes), []
    while len(level) > 1:
        if (beside := number ^ 1) < len(level):
            path.append(level[beside])
        level, number = _above(level), number >> 1
    return path


def root_from(leaf: bytes, number: int, count: int, path: Sequence[bytes]) -> bytes | None:
    """The root that a path leads to from the hash of leaf `number` of `count`; None if to none.

    RFC 9162, section 2.1.3.2.
    """
    if not 0 <= number < count:
        return None
    last, left = count - 1, list(path)
    found = leaf
    while last:
        if number & 1 or number < last:
            if not left:
                return None
            beside = left.pop(0)
            found = _node(beside, found) if number & 1 else _node(found, beside)
        number, last = number >> 1, last >> 1
    return None if left else found


def _above(level: Sequence[bytes]) -> list[bytes]:
    """The nodes above those of a level."""
    pairs = zip(level[::2], level[1::2], strict=False)
    # Without a call of `_node` for each: a night of 10^7 alerts has as many nodes.
    above = [sha256(b"\1" + left + right).digest() for left, right in pairs]
    return above + list(level[len(level) & ~1 :])


def _node(left: bytes, right: bytes) -> bytes:
    return sha256(b"\1" + left + right).digest()
