"""Readers of the bucket itself: the rows that the server gives, without the server.

`docs/store.md` describes the bucket. Several runs may hold versions of a row; these readers keep
the version that wins. Runs that were merged into others and are still listed only repeat rows.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from stampede_client.bucket import Bucket, Errors

if TYPE_CHECKING:
    from duckdb import DuckDBPyRelation
    from polars import DataFrame

KEY = ("object_id", "survey", "forced", "limit", "source_id")
"""Rows that agree in these columns are versions of one point."""
PRECEDENCE = ("withdrawn", "processed_mjd", "reliability")
"""The version that is greater in these columns wins, then in all others in order."""


class Detections:
    """The points of all light curves in a bucket: the rows that the server gives.

    Each method reads the bucket and gives one row per point, without withdrawn points unless they
    are asked for, by object id and time.

    Parameters
    ----------
    bucket
        Where the rows are.
    """

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def arrow(self, objects: Sequence[str] | None = None, withdrawn: bool = False) -> pa.Table:
        """The rows as a pyarrow Table.

        Parameters
        ----------
        objects
            Only these object ids; None for all, which must fit into memory.
        withdrawn
            Also the points that the survey has withdrawn.

        Raises
        ------
        NotFound
            If the bucket has no detections.
        Incomplete
            If rows that may be asked for are damaged or lost; not with ``errors="skip"``.
        Unavailable
            If the store fails, or if runs went on disappearing while they were read.
        """
        keys = None if objects is None else sorted(set(objects))
        wanted = None if keys is None else pc.field("object_id").isin(pa.array(keys, pa.string()))
        rows = winning(self._bucket.rows("detections", keys, wanted))
        if not withdrawn:
            rows = rows.filter(pc.invert(rows["withdrawn"]))
        return rows.sort_by([(name, "ascending") for name in ("object_id", "mjd", *KEY[1:])])

    def polars(self, objects: Sequence[str] | None = None, withdrawn: bool = False) -> "DataFrame":
        """As `arrow`, a Polars DataFrame. Needs ``pip install 'stampede-client[polars]'``."""
        import polars

        frame = polars.from_arrow(self.arrow(objects, withdrawn))
        assert isinstance(frame, polars.DataFrame)
        return frame

    def duckdb(
        self, objects: Sequence[str] | None = None, withdrawn: bool = False
    ) -> "DuckDBPyRelation":
        """As `arrow`, a DuckDB relation. Needs ``pip install 'stampede-client[duckdb]'``."""
        import duckdb

        return duckdb.from_arrow(self.arrow(objects, withdrawn))


def detections(
    store: str, filesystem: fs.FileSystem | None = None, *, errors: Errors = "raise"
) -> Detections:
    """A reader of the light curves in a bucket. It verifies what it reads.

    Parameters
    ----------
    store
        A directory, or a URL that pyarrow knows, such as
        ``s3://BUCKET?endpoint_override=http://HOST:PORT``. With `filesystem`, the bucket's path.
    filesystem
        For example `pyarrow.fs.S3FileSystem` with keys and endpoint.
    errors
        What to do if rows that may be asked for are damaged or lost: raise `Incomplete`, or give
        the others and warn, `IncompleteWarning`.

    Raises
    ------
    BadInput
        If `store` is no such URL.
    """
    return Detections(Bucket(store, filesystem, errors))


def winning(rows: pa.Table) -> pa.Table:
    """One row per key: the version that wins, by the total order of docs/store.md.

    Null is below everything, NaN next, then the numbers. Versions that differ only in the sign of a
    zero count as equal.
    """
    if not rows.num_rows:
        return rows
    counts = rows.group_by(list(KEY), use_threads=False).aggregate([([], "count_all")])
    if counts.num_rows == rows.num_rows:
        return rows
    numbered = rows.append_column("_row", pa.array(range(rows.num_rows), pa.int64()))
    several = counts.filter(pc.greater(counts["count_all"], 1)).select(list(KEY))
    again = numbered.join(several, list(KEY), join_type="inner", use_threads=False)
    rest = [name for name in rows.column_names if name not in KEY + PRECEDENCE]
    order = [(name, "ascending", "at_start") for name in (*KEY, *PRECEDENCE, *rest)]
    again = again.take(pc.sort_indices(again, sort_keys=order))
    losing = again["_row"].combine_chunks().slice(0, again.num_rows - 1).filter(_next_equal(again))
    return rows.filter(pc.invert(pc.is_in(numbered["_row"], losing)))


def _next_equal(ordered: pa.Table) -> pa.Array:
    """Of each row but the last, whether the next one has its key."""
    last = ordered.num_rows - 1
    equal = None
    for name in KEY:
        column = ordered[name]
        same = pc.equal(column.slice(0, last), column.slice(1))
        equal = same if equal is None else pc.and_(equal, same)
    return equal.combine_chunks() if isinstance(equal, pa.ChunkedArray) else equal
