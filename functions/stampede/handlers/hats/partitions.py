"""How a HATS catalogue is cut into HEALPix pixels, by counts of its objects, and their margins.

Pixels are the leaves of a tree: one with more than `most` objects is cut into four, down to the
order `FINEST`. So a dense field has small pixels, and new objects cut only the pixel they are in.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from stampede.alerts.healpix import with_neighbours

INDEX, INDEX_ORDER = "_healpix_29", 29
FINEST = 12
"""Order of the smallest pixels, of 50 arcsec."""
MARGIN = 10.0
"""Arcsec from its edge that a pixel's margin has at least, as in LSDB's examples.

A cross-match with a radius up to this is exact.
"""
MARGIN_ORDER = 13
"""Of cells whose neighbours cover `MARGIN`.

From such a cell to one that is not its neighbour it is 17.3 arcsec at least: their area over their
longest side. Cells of order 14 have 8.6.
"""
_CELLS = 100_000
"""Cells whose neighbours are looked up at once."""


class Leaf(NamedTuple):
    """A pixel: its order, and its number in the nested scheme."""

    order: int
    number: int


class Leaves:
    """The pixels of a catalogue.

    Parameters
    ----------
    cells
        Cells of order 29 of all its objects: int64, in any order.
    most
        Objects that a pixel may have, unless it has the order `FINEST`.
    """

    def __init__(self, cells: np.ndarray, most: int) -> None:
        orders, numbers = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        rest = np.sort(cells)
        for order in range(FINEST + 1):
            parents = rest >> _shift(order)
            distinct, inverse, counts = np.unique(parents, return_inverse=True, return_counts=True)
            done = (counts <= most) | (order == FINEST)
            numbers.append(distinct[done])
            orders.append(np.full(done.sum(), order))
            rest = rest[~done[inverse]]
        order_of, number_of = np.concatenate(orders), np.concatenate(numbers)
        starts = number_of << _shift(order_of)
        along = np.argsort(starts)
        self.orders, self.numbers, self._starts = order_of[along], number_of[along], starts[along]

    def of(self, cells: np.ndarray) -> np.ndarray:
        """Order and number of the leaf with each cell of order 29: int64, (n, 2).

        Where no object is, it is the largest pixel that has none.
        """
        found = np.full((len(cells), 2), -1, np.int64)
        rest = np.arange(len(cells))
        for order in range(FINEST + 1):
            numbers = cells[rest] >> _shift(order)
            first = np.searchsorted(self._starts, numbers << _shift(order))
            end = np.searchsorted(self._starts, (numbers + 1) << _shift(order))
            empty = first == end
            whole = ~empty
            whole[whole] = self.orders[first[whole]] == order
            done = empty | whole
            found[rest[done]] = np.column_stack([np.full(done.sum(), order), numbers[done]])
            rest = rest[~done]
        return found

    def margins(self, cells: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """In which margins objects are: rows of `cells`, and order and number of a pixel of each.

        An object is in the margin of a pixel that it is not in, but within `MARGIN` of, and of some
        that are up to 60 arcsec away. Pixels without objects have margins, for those of another
        catalogue may be there.

        Parameters
        ----------
        cells
            Of order 29: int64, (n,).

        Returns
        -------
        np.ndarray, np.ndarray
            int64, (m,) and (m, 2), by row; a pair is there once.
        """
        fine, inverse = np.unique(cells >> _shift(MARGIN_ORDER), return_inverse=True)
        at_edge = np.flatnonzero(_at_edge(fine, self.of(fine << _shift(MARGIN_ORDER))[:, 0]))
        pairs = [np.zeros((0, 3), np.int64), *self._margins_of(fine[at_edge])]
        of_fine = np.unique(np.concatenate(pairs), axis=0)
        of_fine[:, 0] = at_edge[of_fine[:, 0]]
        counts = np.bincount(of_fine[:, 0], minlength=len(fine))
        firsts = np.cumsum(counts) - counts
        each = counts[inverse]
        rows = np.repeat(np.arange(len(cells)), each)
        nth = np.arange(len(rows)) - np.repeat(np.cumsum(each) - each, each)
        return rows, of_fine[np.repeat(firsts[inverse], each) + nth, 1:]

    def _margins_of(self, fine: np.ndarray) -> Iterator[np.ndarray]:
        """Of cells of `MARGIN_ORDER` their places in `fine`, and the pixels they are margins of."""
        for begin in range(0, len(fine), _CELLS):
            some = fine[begin : begin + _CELLS]
            around = with_neighbours(some, MARGIN_ORDER)
            at, column = np.nonzero(around >= 0)
            others = self.of(around[at, column] << _shift(MARGIN_ORDER))
            differ = (others != self.of(some << _shift(MARGIN_ORDER))[at]).any(axis=1)
            yield np.column_stack([at[differ] + begin, others[differ]])


def _at_edge(fine: np.ndarray, orders: np.ndarray) -> np.ndarray:
    """Which cells of `MARGIN_ORDER` lie along the edge of their pixels, which have these orders.

    In the nested scheme a cell's number has its two coordinates in a pixel as alternate bits.
    """
    inside = (np.int64(1) << 2 * (MARGIN_ORDER - orders)) - 1
    found = np.zeros(len(fine), bool)
    for alternate in (0x5555555, 0xAAAAAAA):
        mask = inside & alternate
        found |= (fine & mask == 0) | (fine & mask == mask)
    return found


def _shift(order: int | np.ndarray) -> np.ndarray:
    """Bits between a pixel's number and those of its cells of order 29."""
    return np.asarray(2 * (INDEX_ORDER - np.asarray(order, np.int64)))
