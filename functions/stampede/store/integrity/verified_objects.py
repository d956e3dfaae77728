"""Parquet objects of a store, read in part, and verified as far as they are read.

That is the footer by its checksum, the format number, each page that is read by its CRC, and the
name: a part of a run says in its footer which one it is, and of a pack the night must be that of
its folder. The other names are digests of all bytes: `packs.check_digest` compares them.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.packs.pack_name import night_of
from stampede.store.parquet.checksums import (
    PARQUET_ERRORS,
    FileMetaData,
    open_verified,
    parse_verified,
    read_file,
)
from stampede.store.parquet.object_footer import footer_bytes
from stampede.store.parquet.range_file import ObjectFile
from stampede.store.runs.footer import parse_footer
from stampede.store.runs.schema import ALL_TABLES, PACK_SPECS


def footer_of(objects: Objects, info: ObjectInfo) -> FileMetaData:
    """The footer of an object, verified. Raises `NotFound`, `StoreDown`, `Damaged`."""
    metadata = parse_verified(info.key, footer_bytes(objects, info))
    try:
        _check_name(info, metadata)
    except PARQUET_ERRORS as error:
        raise Damaged(f"{info.key} does not have a footer of a run: {error}") from None
    return metadata


def read_columns(objects: Objects, info: ObjectInfo, columns: Sequence[str]) -> pa.Table:
    """Some columns of an object, by two requests if they lie side by side.

    Raises `NotFound`, `StoreDown`, and `Damaged`, which names the key.
    """
    metadata = footer_of(objects, info)
    file = open_verified(ObjectFile(objects, info), metadata, pre_buffer=True)
    return read_file(info.key, file, columns)


def read_column(objects: Objects, info: ObjectInfo, column: str) -> Iterator[pa.ChunkedArray]:
    """One column of an object, a row group at a time. Raises as `read_columns`."""
    metadata = footer_of(objects, info)
    try:
        file = open_verified(ObjectFile(objects, info), metadata)
        for group in range(metadata.num_row_groups):
            yield file.read_row_group(group, columns=[column], use_threads=False)[column]
    except PARQUET_ERRORS as error:
        raise Damaged(f"{info.key} is damaged: {error}") from None


def _check_name(info: ObjectInfo, metadata: FileMetaData) -> None:
    """Raise `Damaged` if a footer is not that of the object of this name, as far as it says."""
    folder, _, rest = info.key.partition("/")
    if spec := ALL_TABLES.get(rest.partition("/")[0]) if folder == "tables" else None:
        parse_footer(metadata, info, spec)
        return
    if folder in PACK_SPECS and PACK_SPECS[folder].image not in metadata.schema.names:
        raise Damaged(f"{info.key} does not hold what its folder is for: it is another object")
    night, latest = night_of(info.key), _latest_mjd(metadata)
    # Packs are named by the truncated MJD, those of packets by its floor.
    if night is not None and latest is not None and night not in (int(latest), np.floor(latest)):
        raise Damaged(f"{info.key} does not hold alerts of that night: it is another pack")


def _latest_mjd(metadata: FileMetaData) -> float | None:
    """The greatest value of the column `mjd`; None if the footer does not say."""
    if metadata.num_row_groups != 1:
        return None
    group = metadata.row_group(0)
    for chunk in map(group.column, range(group.num_columns)):
        if chunk.path_in_schema == "mjd" and chunk.statistics and chunk.statistics.has_min_max:
            return float(chunk.statistics.max)
    return None
