"""Where the objects of a HATS catalogue are, and which of them move."""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from stampede.alerts.healpix import cells_of
from stampede.alerts.positions import CELLS
from stampede.errors import Damaged
from stampede.handlers.hats.partitions import INDEX, INDEX_ORDER
from stampede.store.programmes.rights import Rights
from stampede.store.tables.range_lookup import Ranges, lacking, rows_in
from stampede.store.tables.table import Table

MOVED = 5.0
"""Arcsec from the latest place of an object that moves to another of its places, at least.

A fixed object's detections scatter less: ZTF takes those within 1.5 arcsec for one object.
"""


class Places(NamedTuple):
    """Every place at which objects were seen, and the latest of each object, by cell.

    The objects that stay where they are and those that move are apart.
    """

    all: pa.Table
    fixed: pa.Table
    moving: pa.Table


def places_in(table: Table, rights: Rights) -> Places:
    """The places of the table `positions`.

    Raises `Damaged` if rows cannot be read, and `StoreDown`.
    """
    everywhere = Ranges(np.array([0]), np.array([CELLS]))
    found = [rights.rows(rows) for rows in rows_in(table, everywhere)]
    for key, why in lacking(table, everywhere).items():
        raise Damaged(f"{key}: {why}; the catalogue would lack its objects")
    rows = pa.concat_tables(found) if found else table.spec.no_rows
    order = [(name, "ascending") for name in ("object_id", "survey")]
    order += [(name, "descending") for name in ("last_mjd", "detections", "healpix")]
    rows = rows.sort_by(order).select(["object_id", "survey", "ra", "dec"])
    cells = cells_of(rows["ra"].to_numpy(), rows["dec"].to_numpy(), INDEX_ORDER)
    rows = rows.add_column(0, INDEX, pa.array(cells.astype(np.int64))).combine_chunks()
    starts = _starts(rows)
    moves = np.zeros(len(starts), bool)
    objects = np.cumsum(np.isin(np.arange(rows.num_rows), starts)) - 1
    moves[objects[_far(rows, starts[objects])]] = True
    fixed, moving = (rows.take(pa.array(starts[some])).sort_by(ORDER) for some in (~moves, moves))
    return Places(rows, fixed, moving)


ORDER = [(name, "ascending") for name in (INDEX, "object_id", "survey")]
"""Of the rows of a pixel."""


def _starts(rows: pa.Table) -> np.ndarray:
    """The first row of each object, of rows by object: its latest place."""
    first = np.ones(rows.num_rows, bool)
    if rows.num_rows:
        ids, surveys = rows["object_id"].combine_chunks(), rows["survey"].combine_chunks()
        same = pc.and_(pc.equal(ids[1:], ids[:-1]), pc.equal(surveys[1:], surveys[:-1]))
        first[1:] = ~np.asarray(same)
    return np.flatnonzero(first)


def _far(rows: pa.Table, others: np.ndarray) -> np.ndarray:
    """Which rows are more than `MOVED` from the rows with the numbers `others`."""
    ra, dec = (np.radians(rows[name].to_numpy()) for name in ("ra", "dec"))
    # By haversines, which keep their digits at small angles.
    across = np.cos(dec) * np.cos(dec[others]) * np.sin((ra - ra[others]) / 2) ** 2
    haversine = np.sin((dec - dec[others]) / 2) ** 2 + across
    far: np.ndarray = haversine > np.sin(np.radians(MOVED / 3600) / 2) ** 2
    return far
