"""Objects around a position, the nearest first, in bounded memory however many there are."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from stampede.alerts.columns import POSITION
from stampede.alerts.positions import object_codes
from stampede.lookup.refreshing_table import RefreshingTable
from stampede.lookup.sky import ARCSEC, Place, cells_around, separation
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.parquet.xxhash64 import hash_keys

MOST_ROWS = 200_000
"""Rows of the table that are sorted at once: 30 MB. A cone with more is cut into rings."""
MARGIN = 7 / ARCSEC
"""Degrees around a cone in which the cells of its objects are looked for: two cells."""
_THINNEST = 10 / ARCSEC  # degrees: a ring that is not cut any more

PLACED = pa.schema(
    [
        POSITION.field("object_id"),
        POSITION.field("survey"),
        *(POSITION.field(name) for name in ("ra", "dec")),
        pa.field("distance", pa.float64(), False, {"unit": "arcsec", "doc": "from the centre"}),
    ]
)
"""The columns of what a search finds."""
_TIME = {"unit": "d"}
COUNTS = pa.schema(
    [
        pa.field(
            "detections",
            pa.int32(),
            True,
            {"doc": "of its light curve, withdrawn ones left out; null if they were not counted"},
        ),
        pa.field("first_mjd", pa.float64(), True, _TIME | {"doc": "of its first detection (TAI)"}),
        pa.field("last_mjd", pa.float64(), True, _TIME | {"doc": "of its last detection (TAI)"}),
    ]
)
"""The columns that its light curve has (`stampede.lookup.light_curves`)."""
FOUND = pa.schema([*PLACED, *COUNTS])
"""The columns of a response."""


class Times(NamedTuple):
    """Objects whose latest detection here is at `start` or later, before `end` (MJD)."""

    start: float = -np.inf
    end: float = np.inf


class Cone(NamedTuple):
    """All positions within `radius` degrees of `centre`."""

    centre: Place
    radius: float
    times: Times = Times()


def nearest_first(table: RefreshingTable, cone: Cone) -> Iterator[pa.Table]:
    """The objects in a cone, rows of `PLACED`, each once, the nearest first.

    Parameters
    ----------
    table
        The table `positions`.

    Raises `StoreDown`.
    """
    seen: list[np.ndarray] = []  # hashes of objects in earlier rings, each sorted
    for rows, inner, outer in _rings(table, cone.centre, 0.0, cone.radius, last=True):
        found = objects_in(rows, cone, inner, outer)
        hashes = _hashes(found)
        new = ~np.logical_or.reduce([np.zeros(len(hashes), bool), *_among(hashes, seen)])
        seen.append(np.sort(hashes))
        yield found if new.all() else found.filter(pa.array(new))


def first_rows(found: Iterable[pa.Table], most: int | None) -> Iterator[pa.Table]:
    """The first `most` rows, all if that is None. Asks for no table after the one with the last."""
    for table in found:
        yield table[:most]
        if most is not None:
            most -= table.num_rows
            if most <= 0:
                return


def objects_in(
    rows: pa.Table, cone: Cone, inner: float = 0.0, outer: float | None = None
) -> pa.Table:
    """Of rows of `positions` the objects of which any lies in a cone: rows of `PLACED`.

    An object has the position and the distance of the nearest row.

    Parameters
    ----------
    inner, outer
        Only objects whose distance is in ``[inner, outer)`` degrees; None is the whole cone.
    """
    if not rows.num_rows:
        return PLACED.empty_table()
    away = separation(cone.centre, rows["ra"].to_numpy(), rows["dec"].to_numpy())
    every = np.arange(rows.num_rows)
    objects = nearest_rows(rows, every, np.zeros_like(every), away)
    inside = (objects.away >= inner) & (objects.away <= cone.radius) & objects.seen(cone.times)
    if outer is not None:
        inside &= objects.away < outer
    return pa.table(objects.only(inside).columns_of(rows), PLACED)


class Nearest(NamedTuple):
    """Objects around one centre or several, and the nearest row of each: arrays of one shape.

    Attributes
    ----------
    number
        Number of the centre.
    row
        Number of the row.
    away
        Degrees between the two.
    last
        The time (MJD) of the latest detection in all rows of the object.
    """

    number: np.ndarray
    row: np.ndarray
    away: np.ndarray
    last: np.ndarray

    def seen(self, times: Times) -> np.ndarray:
        """Whether the last detection of each is within these times."""
        return (self.last >= times.start) & (self.last < times.end)

    def only(self, chosen: np.ndarray) -> "Nearest":
        """Those for which `chosen` is true, by centre, the nearest first."""
        at = np.flatnonzero(chosen)
        at = at[np.lexsort((self.away[at], self.number[at]))]
        return Nearest(*(values[at] for values in self))

    def columns_of(self, rows: pa.Table) -> list[pa.ChunkedArray | np.ndarray]:
        """The columns of `PLACED`."""
        taken = rows.select(PLACED.names[:4]).take(pa.array(self.row))
        return [*taken.columns, self.away * ARCSEC]


def nearest_rows(rows: pa.Table, row: np.ndarray, number: np.ndarray, away: np.ndarray) -> Nearest:
    """Of pairs of a row and a centre, at least one, one for each object and centre.

    Parameters
    ----------
    rows
        Rows of `POSITION`.
    row, number, away
        Of each pair the number of the row, the number of the centre, and the degrees between them.
    """
    code = object_codes(rows)[row]
    order = np.lexsort((away, code, number))
    new = (np.diff(code[order]) != 0) | (np.diff(number[order]) != 0)
    starts = np.flatnonzero(np.append(True, new))
    last = np.maximum.reduceat(rows["last_mjd"].to_numpy()[row[order]], starts)
    nearest = order[starts]
    return Nearest(number[nearest], row[nearest], away[nearest], last)


def _rings(
    table: RefreshingTable, centre: Place, inner: float, outer: float, last: bool
) -> Iterator[tuple[pa.Table, float, float | None]]:
    """Rows around each ring of a cone, from the centre on, and the ring's radii in degrees.

    A ring with more than `MOST_ROWS` is cut into two of equal areas.
    """
    cells = cells_around(centre, max(0.0, inner - MARGIN), outer + MARGIN)
    found, count = [POSITION.empty_table().replace_schema_metadata()], 0
    for rows in table.between(cells):
        away = separation(centre, rows["ra"].to_numpy(), rows["dec"].to_numpy())
        near = (away >= inner - MARGIN) & (away <= outer + MARGIN)
        found.append(rows.filter(pa.array(near)))
        count += found[-1].num_rows
        if count > MOST_ROWS and outer - inner > _THINNEST:
            break
    else:
        yield pa.concat_tables(found), inner, None if last else outer
        return
    found.clear()
    middle = _halfway(inner, outer)
    yield from _rings(table, centre, inner, middle, last=False)
    yield from _rings(table, centre, middle, outer, last)


def _halfway(inner: float, outer: float) -> float:
    """The radius that cuts a ring into two of equal areas: sin^2(r/2) is the area of a cap."""
    caps = np.sin(np.radians([inner, outer]) / 2) ** 2
    return float(np.degrees(2 * np.arcsin(np.sqrt(caps.mean()))))


def _hashes(found: pa.Table) -> np.ndarray:
    names = pc.binary_join_element_wise(found["survey"], found["object_id"], "/")
    return hash_keys(names.combine_chunks()) if len(names) else np.empty(0, np.uint64)


def _among(hashes: np.ndarray, seen: Sequence[np.ndarray]) -> Iterator[np.ndarray]:
    """Whether each of `hashes` is in each of the sorted arrays."""
    for known in seen:
        if len(known):
            yield known[known.searchsorted(hashes).clip(max=len(known) - 1)] == hashes
