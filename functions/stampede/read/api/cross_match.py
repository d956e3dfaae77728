"""The route of a cross-match: the objects around each of many positions."""

import json
import re
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from stampede.alerts.healpix import cells_of
from stampede.alerts.positions import ORDER
from stampede.errors import TooLarge
from stampede.lookup import sky
from stampede.lookup.cone_search import COUNTS, MARGIN, PLACED, Times, nearest_rows
from stampede.lookup.errors import BadParameter
from stampede.lookup.light_curves import LightCurves, count_detections, leave_uncounted
from stampede.lookup.refreshing_table import RefreshingTable
from stampede.read.api import bulk
from stampede.read.api.cone import wanted_times
from stampede.read.api.streams import Chunk
from stampede.read.formats.writers import ArrowWriter, CsvWriter, ParquetWriter
from stampede.read.service import service_of
from stampede.read.web import parameters

MOST = 100_000
"""Positions in one query."""
WIDEST = 60 / sky.ARCSEC
"""Degrees of the largest radius around each: a chunk of positions is matched in memory."""
_POSITION = pa.field("position", pa.int64(), False, {"doc": "number of the position, from 0"})
_NEAR = pa.schema([*PLACED, _POSITION])
MATCHED = pa.schema([_POSITION, *PLACED, *COUNTS])
WRITERS: bulk.Writers = {
    "csv": partial(CsvWriter, MATCHED),
    "parquet": partial(ParquetWriter, MATCHED),
    "arrow": partial(ArrowWriter, MATCHED),
}
_EXAMPLE = 'JSON like {"positions": [[10.5, -5.2]]}, or a line "ra,dec" for each, in degrees'
_JSON = re.compile(rb"\s*[{\[]")


async def post_cone(request: Request) -> Response:
    """The objects around each position in the body; positions without any are the missing ids."""
    query = request.query_params
    if "radius" not in query:
        raise BadParameter("radius", "radius is missing: say for example ?radius=5")
    radius = sky.radius(query["radius"])
    if radius > WIDEST:
        raise BadParameter("radius", "must be at most 60 arcsec around each of many positions")
    lookup = service_of(request).bulk_lookup
    match = Match(lookup.positions, radius, wanted_times(request))
    tables, read = [lookup.positions], match.read
    if parameters.flag(query, "counts") is not False:
        tables, read = [*tables, lookup.detections], partial(_counted, match, lookup.light_curves)
    return await bulk.stream_of(request, match.parse, tables, read, WRITERS)


def _counted(match: "Match", curves: LightCurves, numbers: Sequence[int]) -> Chunk[pa.Table]:
    """As `Match.read`, with the detections counted."""
    chunk = match.near(numbers)
    return chunk._replace(found=_matched(count_detections([chunk.found], curves)))


def _matched(found: Iterable[pa.Table]) -> pa.Table:
    """Rows of `MATCHED`."""
    return pa.concat_tables(found).select(MATCHED.names).cast(MATCHED)


class Match:
    """A cross-match: positions, and what is found around them."""

    def __init__(self, table: RefreshingTable, radius: float, times: Times) -> None:
        self._table, self._radius, self._times = table, radius, times
        self._places = np.empty((0, 2))

    def parse(self, body: bytearray, most: int) -> np.ndarray:
        """Keep the positions of a body; return their numbers, neighbours on the sky together.

        Raises `BadParameter`, `TooLarge`.
        """
        return self.take(parse_places(body, min(most, MOST)))

    def take(self, places: np.ndarray) -> np.ndarray:
        """Keep positions, shape (n, 2); return their numbers, neighbours on the sky together."""
        self._places = places
        ra, dec = places.T
        order: np.ndarray = np.argsort(cells_of(ra, dec, ORDER), kind="stable")
        return order

    def read(self, numbers: Sequence[int]) -> Chunk[pa.Table]:
        """The objects around the positions of these numbers: rows of `MATCHED`, uncounted."""
        chunk = self.near(numbers)
        return chunk._replace(found=_matched(leave_uncounted([chunk.found])))

    def near(self, numbers: Sequence[int]) -> Chunk[pa.Table]:
        """The same as rows of `PLACED`, and the column `position`."""
        around = self._places[numbers].T
        order, index, cells = sky.cells_around_each(around[0], around[1], self._radius + MARGIN)
        ranges = sky.ranges_of(np.unique(cells), order)
        tables = list(self._table.between(ranges))
        shift = 2 * (ORDER - order)
        damaged = self._table.damaged_between(cells << shift, (cells + 1) << shift)
        unreadable = set(np.asarray(numbers)[index[damaged]].tolist())
        if not tables:
            return Chunk(_NEAR.empty_table(), set(), unreadable)
        rows = pa.concat_tables(tables)
        by_cell = np.argsort(cells, kind="stable")
        keys = rows["healpix"].to_numpy() >> shift
        first, last = (cells[by_cell].searchsorted(keys, side) for side in ("left", "right"))
        counts = last - first
        row = np.repeat(np.arange(len(keys)), counts)
        place = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)
        which = index[by_cell][np.repeat(first, counts) + place]
        found = self._nearest(rows, row, np.asarray(numbers)[which])
        return Chunk(found, set(found["position"].to_pylist()), unreadable)

    def _nearest(self, rows: pa.Table, row: np.ndarray, number: np.ndarray) -> pa.Table:
        """Of pairs of a row and the number of a position one row for each object around it."""
        centre = sky.Places(*self._places[number].T)
        ra, dec = (rows[name].to_numpy()[row] for name in ("ra", "dec"))
        away = sky.separation(centre, ra, dec)
        near = np.flatnonzero(away <= self._radius + MARGIN)
        if not len(near):
            return _NEAR.empty_table()
        objects = nearest_rows(rows, row[near], number[near], away[near])
        objects = objects.only((objects.away <= self._radius) & objects.seen(self._times))
        return pa.table([*objects.columns_of(rows), objects.number], _NEAR)


def parse_places(body: bytearray, most: int) -> np.ndarray:
    """The positions in a body: degrees, shape (n, 2). Raises `BadParameter`, `TooLarge`."""
    if body.count(b"\n") > most + 1 or body.count(b"[") > most + 1:
        raise TooLarge(f"more than {most} positions: split the query")
    try:
        places = _from_json(body) if _JSON.match(body) else _from_text(body)
    except (ValueError, TypeError, RecursionError):
        raise BadParameter("positions", f"the body must be {_EXAMPLE}") from None
    if places.ndim != 2 or places.shape[1] != 2 or not len(places):
        raise BadParameter("positions", f"the body must be {_EXAMPLE}")
    inside = (places[:, 0] >= 0) & (places[:, 0] <= 360) & (np.abs(places[:, 1]) <= 90)
    if not inside.all():
        number = int(np.flatnonzero(~inside)[0])
        bad = ", ".join(map(str, places[number].tolist()))
        raise BadParameter("positions", f"position {number} is not on the sky: {bad}")
    places[:, 0] %= 360
    return places


def _from_json(body: bytearray) -> np.ndarray:
    query = json.loads(body)
    if not isinstance(query, dict) or query.keys() != {"positions"}:
        raise ValueError("not an object with positions alone")
    if not all(type(value) in (int, float) for place in query["positions"] for value in place):
        raise ValueError("not numbers")
    return np.array(query["positions"], np.float64)


def _from_text(body: bytearray) -> np.ndarray:
    lines = [line for line in body.decode("ascii").splitlines() if line.strip()]
    if lines and re.fullmatch(r"\s*ra\s*[,;\s]\s*dec\s*", lines[0], re.IGNORECASE):
        lines = lines[1:]
    return np.array([re.split(r"[,;\s]+", line.strip()) for line in lines], np.float64)
