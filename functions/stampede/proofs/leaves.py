"""The leaves of a night's tree: an entry for each version of each alert, in order.

An entry has 40 bytes: the alert's id (64 bits, big-endian), then the SHA-256 of its Avro record. An
object of leaves has all entries of a night, then for each 4,096 of them 40 bytes more: the id of
the first, and the root of their subtree. So one path takes two ranged GETs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged
from stampede.proofs.merkle_tree import path_of, root_of
from stampede.store.objects.object_store import Objects
from stampede.store.runs.merge import one_array
from stampede.store.runs.run_name import name_of

WIDTH = 40
ID_BYTES = 8
SUBTREE = 1 << 12
"""Leaves of a subtree whose root an object of leaves has."""
PIECE = 8 << 20
"""Bytes of a part of an upload: the entries of 10^7 alerts are 400 MB, and must not be copied."""


def no_entries() -> np.ndarray:
    """No entries: uint8 of shape (0, 40)."""
    return np.zeros((0, WIDTH), np.uint8)


def entries_of(alert_ids: pa.ChunkedArray, digests: pa.ChunkedArray) -> np.ndarray:
    """The entries of alerts: uint8 of shape (n, 40), as they come.

    Parameters
    ----------
    alert_ids
        int64, positive, not null.
    digests
        The SHA-256 of the record of each; not null.
    """
    entries = np.empty((len(digests), WIDTH), np.uint8)
    ids = alert_ids.to_numpy().astype(">i8")
    entries[:, :ID_BYTES] = ids.view(np.uint8).reshape(-1, ID_BYTES)
    if len(digests):
        values = one_array(digests)
        bits = np.frombuffer(values.buffers()[1], np.uint8).reshape(-1, WIDTH - ID_BYTES)
        entries[:, ID_BYTES:] = bits[values.offset :][: len(values)]
    return entries


def united(*parts: np.ndarray) -> np.ndarray:
    """The entries of all parts, each once, in order."""
    entries = np.concatenate(parts)
    if not len(entries):
        return entries
    entries = entries[np.argsort(ids_of(entries), kind="stable")]
    ids = ids_of(entries)
    again = ids[1:] == ids[:-1]
    if not again.any():
        return entries
    # By their digests too: they are few.
    several = np.append(again, False) | np.append(False, again)
    some = np.unique(np.ascontiguousarray(entries[several]), axis=0)
    entries = np.concatenate([entries[~several], some])
    return entries[np.argsort(ids_of(entries), kind="stable")]


def without(entries: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Those of `entries` that are not among `others`, each once, in order."""
    one, other = (
        np.ascontiguousarray(each).view(f"S{WIDTH}").ravel() for each in (entries, others)
    )
    return np.setdiff1d(one, other).view(np.uint8).reshape(-1, WIDTH)


def ids_of(entries: np.ndarray) -> np.ndarray:
    """The alerts' ids in entries, int64."""
    ids = np.ascontiguousarray(entries[:, :ID_BYTES]).view(">i8").ravel()
    found: np.ndarray = ids.astype(np.int64)
    return found


def hashes_of(entries: np.ndarray) -> Iterator[list[bytes]]:
    """The hashes of the leaves, those of a subtree at a time."""
    for start in range(0, len(entries), SUBTREE):
        some = entries[start : start + SUBTREE]
        data = np.pad(some, ((0, 0), (1, 0))).tobytes()  # a byte 0 before each
        yield [sha256(data[at : at + WIDTH + 1]).digest() for at in range(0, len(data), WIDTH + 1)]


def root_of_entries(entries: np.ndarray) -> bytes:
    """The root of the tree over entries, which are in order."""
    return root_of([root_of(hashes) for hashes in hashes_of(entries)])


class RootOf:
    """The root of the tree over entries that come in parts, in order; holds one subtree of them."""

    def __init__(self) -> None:
        self._roots: list[bytes] = []
        self._rest = no_entries()

    def add(self, entries: np.ndarray) -> None:
        """Take the next entries."""
        entries = np.concatenate([self._rest, entries]) if len(self._rest) else entries
        whole = len(entries) // SUBTREE * SUBTREE
        self._roots += map(root_of, hashes_of(entries[:whole]))
        self._rest = entries[whole:]

    @property
    def root(self) -> bytes:
        """The root over those that were taken."""
        return root_of([*self._roots, *map(root_of, hashes_of(self._rest))])


class Packed(NamedTuple):
    """The root of entries that are in order, and the object that has them, in pieces."""

    root: bytes
    pieces: list[memoryview]

    @property
    def digest(self) -> str:
        """The digest of the object's bytes."""
        whole = sha256()
        for piece in self.pieces:
            whole.update(piece)
        return name_of(whole.hexdigest())


def packed(entries: np.ndarray) -> Packed:
    """The object of entries that are in order; it does not copy them."""
    roots = [root_of(hashes) for hashes in hashes_of(entries)]
    heads = (entries[number * SUBTREE, :ID_BYTES].tobytes() for number in range(len(roots)))
    above = b"".join(head + root for head, root in zip(heads, roots, strict=True))
    flat = np.ascontiguousarray(entries).reshape(-1)
    return Packed(root_of(roots), [flat.data, memoryview(above)])


def put(objects: Objects, key: str, leaves: Packed) -> None:
    """Store an object of leaves. Raises `StoreDown`."""
    if sum(map(len, leaves.pieces)) <= PIECE:
        objects.put(key, b"".join(leaves.pieces))
    else:
        objects.put_stream(key, _equal_pieces(leaves.pieces))


def _equal_pieces(pieces: list[memoryview]) -> Iterator[bytes]:
    """The same bytes in pieces of `PIECE`, the last one of what is left."""
    held = b""
    for piece in pieces:
        for at in range(0, len(piece), PIECE):
            held += piece[at : at + PIECE]
            while len(held) >= PIECE:
                yield held[:PIECE]
                held = held[PIECE:]
    if held:
        yield held


@dataclass(frozen=True)
class Leaf:
    """An entry, its number among all, and the path from it to the root."""

    entry: bytes
    number: int
    path: list[bytes]


class StoredLeaves:
    """An object of leaves.

    Parameters
    ----------
    key
        That of the object.
    count
        How many entries it has.
    root
        The root of their tree: what is read is compared with it.
    """

    def __init__(self, objects: Objects, key: str, count: int, root: bytes) -> None:
        self._objects, self._key, self._count, self._root = objects, key, count, root
        self._heads: np.ndarray | None = None
        self._roots: list[bytes] = []

    def read(self) -> np.ndarray:
        """All entries, in order. Raises `NotFound`, `StoreDown`, `Damaged`."""
        data = self._objects.get(self._key, 0, self._count * WIDTH)
        entries = np.frombuffer(data[: len(data) // WIDTH * WIDTH], np.uint8).reshape(-1, WIDTH)
        if root_of_entries(entries) != self._root:
            raise Damaged(f"{self._key} does not have the root of its proof")
        return entries

    def of_alert(self, alert_id: int) -> list[Leaf]:
        """The entries of an alert, one for each version; none if the night has none of it.

        Raises `NotFound`, `StoreDown`, `Damaged`.
        """
        heads = self.read_heads()
        last = int(heads.searchsorted(alert_id, "right"))
        first = max(0, int(heads.searchsorted(alert_id, "left")) - 1)
        return [
            leaf for number in range(first, last) for leaf in self._in_subtree(number, alert_id)
        ]

    def read_heads(self) -> np.ndarray:
        """The id of the first alert of each subtree, int64; read once.

        Raises `NotFound`, `StoreDown`, `Damaged`.
        """
        if self._heads is not None:
            return self._heads
        subtrees = -(-self._count // SUBTREE)
        data = self._objects.get(self._key, self._count * WIDTH, subtrees * WIDTH)
        above = np.frombuffer(data[: len(data) // WIDTH * WIDTH], np.uint8).reshape(-1, WIDTH)
        roots = [row[ID_BYTES:].tobytes() for row in above]
        if root_of(roots) != self._root:
            raise Damaged(f"{self._key} does not have the root of its proof")
        # In this order: another thread that finds `_heads` reads `_roots`.
        self._roots, self._heads = roots, ids_of(above)
        return self._heads

    def between(self, first: int, until: int | None, most: int) -> np.ndarray:
        """The entries of alerts from id `first` to before `until`, at most `most`; None is the end.

        It reads the subtrees that have them, with one request.
        Raises `NotFound`, `StoreDown`, `Damaged`.
        """
        heads = self.read_heads()
        begin = max(0, int(heads.searchsorted(first, "left")) - 1)
        end = len(heads) if until is None else int(heads.searchsorted(until, "left"))
        end = min(end, begin + 2 + -(-most // SUBTREE))
        if begin >= end:
            return no_entries()
        entries, _ = self._subtrees(begin, end)
        ids = ids_of(entries)
        low = int(ids.searchsorted(first))
        high = len(ids) if until is None else int(ids.searchsorted(until))
        return entries[low : min(high, low + most)]

    def pieces(self) -> Iterator[np.ndarray]:
        """All entries in order, those of some subtrees at a time: about `PIECE` bytes.

        Raises `NotFound`, `StoreDown`, `Damaged`.
        """
        count, step = len(self.read_heads()), PIECE // (SUBTREE * WIDTH)
        for start in range(0, count, step):
            yield self._subtrees(start, min(start + step, count))[0]

    def _in_subtree(self, number: int, alert_id: int) -> Iterator[Leaf]:
        entries, (hashes,) = self._subtrees(number, number + 1)
        above, start = path_of(self._roots, number), number * SUBTREE
        for row in np.flatnonzero(ids_of(entries) == alert_id).tolist():
            yield Leaf(entries[row].tobytes(), start + row, path_of(hashes, row) + above)

    def _subtrees(self, first: int, end: int) -> tuple[np.ndarray, list[list[bytes]]]:
        """The entries of subtrees, and the hashes of each one's leaves; `read_heads` comes before.

        Raises `NotFound`, `StoreDown`, `Damaged`.
        """
        start = first * SUBTREE
        count = min(end * SUBTREE, self._count) - start
        data = self._objects.get(self._key, start * WIDTH, count * WIDTH)
        entries = np.frombuffer(data[: len(data) // WIDTH * WIDTH], np.uint8).reshape(-1, WIDTH)
        hashes = [*hashes_of(entries)]
        if [root_of(each) for each in hashes] != self._roots[first:end]:
            raise Damaged(f"{self._key} has a damaged subtree")
        return entries, hashes
