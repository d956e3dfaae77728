"""Where cutouts are in the bucket: the rows of the table `cutouts` that readers get."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import fs

from stampede_client.bucket import Bucket, reaching
from stampede_client.cutouts import KINDS

_COLUMNS = (
    *("alert_id", "survey", "kind", "pack", "page_offset", "page_length", "start", "length"),
    *("tail_offset", "tail_length", "crc32", "message_crc32"),
)
_ALERT = ("alert_id", "survey")


class Places(NamedTuple):
    """Rows of cutouts, and the ids of the alerts whose packs are all gone."""

    rows: pa.Table
    gone: np.ndarray


def places_shown(
    bucket: Bucket, ids: Sequence[int] | None, wanted: pc.Expression, kinds: Sequence[str]
) -> Places:
    """The rows of the cutouts that the server shows, by alert id, survey and kind.

    Only cutouts whose pack is there; of each alert those of one version, as docs/store.md says.
    `ids` (ascending) are those of the alerts that `wanted` may select; None if any.
    """
    stored = bucket.rows("cutouts", ids, wanted & pc.field("pack").is_valid(), _COLUMNS)
    rows = stored.filter(pc.is_in(stored["pack"], _there(bucket, stored["pack"].unique())))
    gone = np.setdiff1d(stored["alert_id"].to_numpy(), rows["alert_id"].to_numpy())
    # Rows without the CRC-32 of their message are a version of their own, the lowest.
    message = pc.fill_null(pc.cast(rows["message_crc32"], pa.int64()), -1)
    order = pc.index_in(rows["kind"], pa.array(KINDS))
    rows = rows.drop_columns(["message_crc32"])
    rows = rows.append_column("message", message).append_column("order", order)
    rows = _first_of(rows, (*_ALERT, "message", "order"), ("pack", "page_offset"))
    rows = _of_one_version(rows)
    rows = rows.filter(pc.is_in(rows["kind"], pa.array(kinds, pa.string())))
    return Places(rows.sort_by([(name, "ascending") for name in (*_ALERT, "order")]), gone)


def _there(bucket: Bucket, packs: pa.Array) -> pa.Array:
    """Those of the packs that are not deleted."""
    names = packs.to_pylist()
    with reaching(bucket.root):
        infos = bucket.filesystem.get_file_info([f"{bucket.root}/{name}" for name in names])
    there = [n for n, info in zip(names, infos, strict=True) if info.type == fs.FileType.File]
    return pa.array(there, pa.string())


def _of_one_version(rows: pa.Table) -> pa.Table:
    """Of each alert the version with the most images, of the latest night, of the largest CRC."""
    night = pc.cast(pc.list_element(pc.split_pattern(rows["pack"], "/"), 1), pa.int64())
    versions = (
        rows.append_column("night", night)
        .group_by([*_ALERT, "message"], use_threads=False)
        .aggregate([("order", "count"), ("night", "max")])
    )
    best = _first_of(versions, _ALERT, ("order_count", "night_max", "message"))
    if best.num_rows == versions.num_rows:
        return rows
    keys = [*_ALERT, "message"]
    return rows.join(best.select(keys), keys, join_type="inner")


def _first_of(rows: pa.Table, key: Sequence[str], greatest: Sequence[str]) -> pa.Table:
    """Of the rows with equal `key` the one that is greatest in these columns, by key."""
    rows = rows.sort_by(
        [(name, "ascending") for name in key] + [(name, "descending") for name in greatest]
    )
    first = np.ones(rows.num_rows, bool)
    if rows.num_rows:
        same = [pc.equal(rows[n].slice(1), rows[n].slice(0, rows.num_rows - 1)) for n in key]
        first[1:] = ~np.logical_and.reduce([one.to_numpy() for one in same])
    return rows.filter(pa.array(first))
