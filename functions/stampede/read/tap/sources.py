"""Rows of the tables of TAP out of the store: objects, points, alerts, moving bodies, nights.

The only module of TAP that reads the store. Each reads by what a query bounds: keys, a cone, a
range; otherwise the whole table, chunk by chunk.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from stampede.alerts.healpix import cells_of
from stampede.alerts.positions import ORDER
from stampede.lookup.cone_search import COUNTS, MARGIN, PLACED, Cone, nearest_first
from stampede.lookup.light_curves import count_detections, leave_uncounted
from stampede.lookup.lookup import Lookup
from stampede.lookup.points import measured
from stampede.lookup.refreshing_table import RefreshingTable
from stampede.lookup.sky import FULL, Place
from stampede.read.summaries.night_counts import NightCount
from stampede.read.tap.tables import ALERTS, NIGHTS
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.packs.alert_versions import shown
from stampede.store.tables.range_lookup import Ranges

SOME = 1000
"""Keys that are looked up at once."""
_MOST = (1 << 63) - 1
_POSITION = "__position"

Around = Callable[[np.ndarray, float], Iterator[pa.Table]]
"""The objects within so many degrees of each of some positions (n, 2): rows of
`cross_match.MATCHED`."""


class Sources:
    """The tables of a store. Threads may share it.

    Parameters
    ----------
    nights
        Which nights there are.
    counts
        How many alerts each of some nights has.
    """

    def __init__(
        self,
        lookup: Lookup,
        around: Around,
        nights: Callable[[], Sequence[int]],
        counts: Callable[[Sequence[int]], Sequence[NightCount]],
    ) -> None:
        self._lookup, self._around, self._nights, self._counts = lookup, around, nights, counts
        self._counting = threading.Lock()

    def rows_of(
        self, table: str, columns: Sequence[str], bound: Sequence[Any]
    ) -> Iterator[pa.Table]:
        """The rows of a bound (`plan.Bound`), in chunks. Raises `StoreDown`."""
        kind, column, values, _ = bound
        read = {
            "objects": self._objects,
            "detections": self._detections,
            "alerts": self._alerts,
            "moving": self._moving,
            "nights": self._of_nights,
        }[table]
        wanted = [*columns, _POSITION] if kind == "around" else [*columns]
        found = read(kind, column, values)
        if table == "objects":
            found = self._counted(found) if {*columns} & {*COUNTS.names} else leave_uncounted(found)
        for rows in found:
            yield rows.select(wanted).replace_schema_metadata()

    def _counted(self, found: Iterator[pa.Table]) -> Iterator[pa.Table]:
        return count_detections(found, self._lookup.light_curves)

    def _objects(self, kind: str, column: str, values: Sequence[Any]) -> Iterator[pa.Table]:
        positions = self._lookup.positions
        if kind == "cone":
            ra, dec, radius = values
            return nearest_first(positions, Cone(Place(ra % 360, dec), radius))
        if kind == "around":
            return self._objects_around(*values)
        if kind == "keys":
            return (self._named(some) for some in _parts(sorted(set(values))))
        return nearest_first(positions, Cone(Place(0.0, 0.0), FULL))

    def _objects_around(
        self, ra: Sequence[float], dec: Sequence[float], radius: float
    ) -> Iterator[pa.Table]:
        places = np.array([ra, dec], np.float64).T
        inside = np.isfinite(places).all(axis=1)
        inside &= (places[:, 0] >= 0) & (places[:, 0] <= 360) & (np.abs(places[:, 1]) <= 90)
        numbers = np.flatnonzero(inside)
        places[:, 0] %= 360.0
        for rows in self._around(places[inside], radius):
            position = pa.array(numbers[rows["position"].to_numpy()])
            yield rows.select(PLACED.names).append_column(_POSITION, position)

    def _named(self, object_ids: Sequence[str]) -> pa.Table:
        """The objects of these ids: rows of `PLACED`."""
        points = measured(self._lookup.detections.lookup(object_ids))
        points = points.filter(pc.and_(points["ra"].is_valid(), points["dec"].is_valid()))
        if not points.num_rows:
            return PLACED.empty_table()
        cells = np.unique(cells_of(points["ra"].to_numpy() % 360, points["dec"].to_numpy(), ORDER))
        tables = [*self._lookup.positions.between(Ranges(cells, cells + 1))]
        if not tables:
            return PLACED.empty_table()
        rows = pa.concat_tables(tables)
        rows = rows.filter(pc.is_in(rows["object_id"], pa.array(object_ids, pa.string())))
        return _one_each(rows)

    def _detections(self, kind: str, column: str, values: Sequence[Any]) -> Iterator[pa.Table]:
        table = self._lookup.detections
        if kind == "cone":
            ra, dec, radius = values
            cone = Cone(Place(ra % 360, dec), min(FULL, radius + MARGIN))
            for found in nearest_first(self._lookup.positions, cone):
                ids = sorted(set(found["object_id"].to_pylist()))
                yield from map(table.lookup, _parts(ids))
        else:
            yield from _keyed(table, kind, values)

    def _moving(self, kind: str, column: str, values: Sequence[Any]) -> Iterator[pa.Table]:
        return _keyed(self._lookup.moving, kind, values)

    def _alerts(self, kind: str, column: str, values: Sequence[Any]) -> Iterator[pa.Table]:
        table = self._lookup.cutouts
        if kind == "keys" and column == "object_id":
            for some in _parts(sorted(set(values))):
                points = measured(self._lookup.detections.lookup(some))
                ids = sorted(set(points["source_id"].drop_null().to_pylist()))
                for rows in map(self._of_alerts, map(table.lookup, _parts(ids))):
                    yield rows.filter(pc.is_in(rows["object_id"], pa.array(some, pa.string())))
        elif kind == "keys":
            ids = sorted({value for value in values if 0 < value <= _MOST})
            yield from map(self._of_alerts, map(table.lookup, _parts(ids)))
        else:
            low, high = values if kind == "range" else (0, _MOST)
            low, high = max(0, low), min(high, _MOST - 1)
            ranges = Ranges(np.array([low]), np.array([high + 1]))
            if low <= high:
                yield from map(self._of_alerts, table.between(ranges))

    @staticmethod
    def _of_alerts(rows: pa.Table) -> pa.Table:
        """One row for each alert of rows of the table `cutouts`."""
        rows = shown(rows)
        found = rows.group_by(["alert_id", "survey"], use_threads=False).aggregate(
            [("object_id", "min"), ("mjd", "max"), ("pack", "count")]
        )
        named = found.select(
            ["alert_id", "survey", "object_id_min", "mjd_max", "pack_count"]
        ).rename_columns(ALERTS.columns.names)
        return named.cast(ALERTS.columns.remove_metadata())

    def _of_nights(self, kind: str, column: str, values: Sequence[Any]) -> Iterator[pa.Table]:
        low, high = values if kind == "range" else (0, _MOST)
        nights = [night for night in self._nights() if low <= night <= high]
        for some in _parts(nights, 30):
            with self._counting:
                counts = self._counts(some)
            rows = [
                {"night": each.night, "survey": survey, "alerts": count, "exact": each.exact}
                for each in counts
                for survey, count in each.alerts.items()
            ]
            yield pa.Table.from_pylist(rows, NIGHTS.columns.remove_metadata())


def _parts(values: Sequence[Any], size: int = SOME) -> Iterator[Sequence[Any]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _keyed(table: RefreshingTable, kind: str, values: Sequence[Any]) -> Iterator[pa.Table]:
    """The rows of these leading keys, or all."""
    if kind == "keys":
        yield from map(table.lookup, _parts(sorted(set(values))))
    else:
        yield from table.whole(SOME)


def _one_each(rows: pa.Table) -> pa.Table:
    """Rows of `POSITION`, all of some objects: one row of each, where it was seen last."""
    rows = rows.sort_by([("last_mjd", "descending"), ("healpix", "ascending")])
    found = rows.group_by(["object_id", "survey"], use_threads=False).aggregate(
        [("ra", "first"), ("dec", "first")]
    )
    found = found.select(["object_id", "survey", "ra_first", "dec_first"])
    distance = pa.nulls(found.num_rows, pa.float64()).fill_null(0.0)
    found = found.append_column("distance", distance).rename_columns(PLACED.names)
    return found.cast(PLACED)
