"""Leading keys as numpy arrays that sort and compare as Parquet does."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from stampede.store.runs.schema import TableSpec

LONG = 256  # bytes of a leading key that are compared to find a row group; no survey has such ids


def sortable(values: Sequence[Any], spec: TableSpec) -> np.ndarray:
    """Leading keys as an array of shape (n,): int64, or UTF-8 bytes.

    numpy drops a string's trailing NULs. That keeps the order, so a search may find a row group
    too many, never one too few.
    """
    if spec.leads_text:
        return np.array([value.encode() for value in values] or [b""], np.bytes_)[: len(values)]
    return np.array(values, np.int64)


def bounds(values: Sequence[Any], spec: TableSpec, upper: bool = False) -> np.ndarray:
    """As `sortable`, but a long string is cut to a bound of it: a lower one, or an `upper` one.

    numpy gives every string of an array the room of the longest.
    """
    if spec.leads_text:
        cut = [_bound(value.encode(), upper) for value in values]
        return np.array(cut or [b""], np.bytes_)[: len(values)]
    return np.array(values, np.int64)


def _bound(value: bytes, upper: bool) -> bytes:
    if len(value) <= LONG:
        return value
    beginning = value[:LONG].decode(errors="ignore").encode()  # no character is cut
    return beginning + b"\xff" * upper  # which no UTF-8 contains


def overlapping(firsts: np.ndarray, lasts: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Indices of the ranges ``[firsts[i], lasts[i]]`` that hold any of `wanted`, sorted."""
    # The methods of an array: numpy's functions spend more than the search of a single key takes.
    low, high = wanted.searchsorted(firsts, "left"), wanted.searchsorted(lasts, "right")
    return (low < high).nonzero()[0]


def between(wanted: np.ndarray, first: int | bytes, last: int | bytes) -> slice:
    """The slice of `wanted`, which is sorted, that lies in ``[first, last]``."""
    low, high = wanted.searchsorted(first, "left"), wanted.searchsorted(last, "right")
    return slice(int(low), int(high))
