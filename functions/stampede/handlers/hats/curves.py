"""Rows of a HATS catalogue: objects, each with its light curve."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from stampede.alerts.columns import DETECTION
from stampede.handlers.hats.partitions import INDEX

POINTS = [field for field in DETECTION if field.name not in ("object_id", "survey", "withdrawn")]


def with_curves(pixels: Sequence[pa.Table], points: pa.Table) -> list[pa.Table]:
    """The objects of each pixel that have points, with these by time, as `read` gives them.

    Parameters
    ----------
    pixels
        Objects by cell, of each `_healpix_29`, `object_id`, `survey`, `ra` and `dec`. An object may
        be in several pixels.
    points
        Rows of `DETECTION`, those of other objects too.
    """
    keys = ["object_id", "survey"]
    points = points.sort_by([(name, "ascending") for name in (*keys, "mjd", "source_id")])
    numbers = points.select(keys).append_column("row", pa.array(np.arange(points.num_rows)))
    groups = numbers.group_by(keys, use_threads=False).aggregate([("row", "min"), ("row", "count")])
    pixel_of_row = np.repeat(np.arange(len(pixels)), [rows.num_rows for rows in pixels])
    rows = pa.concat_tables(pixels).append_column("pixel", pa.array(pixel_of_row))
    rows = rows.join(groups, keys, join_type="inner", use_threads=False)
    rows = rows.sort_by([(name, "ascending") for name in ("pixel", INDEX, *keys)])
    counts = rows["row_count"].to_numpy()
    offsets = np.concatenate([[0], np.cumsum(counts)])
    begins = np.repeat(rows["row_min"].to_numpy() - offsets[:-1], counts)
    points = points.take(pa.array(begins + np.arange(offsets[-1])))
    lists = [
        pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), points[field.name].combine_chunks())
        for field in POINTS
    ]
    curve = pa.StructArray.from_arrays(lists, [field.name for field in POINTS])
    columns = [rows[name] for name in (INDEX, "object_id", "survey", "ra", "dec")]
    found = pa.table(
        [*columns, rows["row_count"], curve],
        [INDEX, "object_id", "survey", "ra", "dec", "points", "lightcurve"],
    )
    cuts = np.searchsorted(rows["pixel"].to_numpy(), np.arange(len(pixels) + 1))
    return [found.slice(begin, end - begin) for begin, end in pairwise(cuts)]
