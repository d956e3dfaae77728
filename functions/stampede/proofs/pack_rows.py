"""What proofs need of a pack of packets: ids, digests and offsets, and neither packet nor image."""

import pyarrow as pa

from stampede.errors import Damaged
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.integrity.verified_objects import footer_of
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.packs.packets import with_columns
from stampede.store.parquet.checksums import PARQUET_ERRORS, open_verified, read_file
from stampede.store.parquet.range_file import ObjectFile

COLUMNS = ("alert_id", "survey", "mjd", "sha256", "topic", "partition", "offset")


def read_rows(objects: Objects, info: ObjectInfo) -> pa.Table:
    """The columns `COLUMNS` of a pack, and `night`, the integer MJD (TAI) of each alert.

    Raises `NotFound`, `StoreDown`, `Damaged`.
    """
    metadata = footer_of(objects, info)
    names = [name for name in COLUMNS if name in metadata.schema.names]
    file = open_verified(ObjectFile(objects, info), metadata, pre_buffer=True)
    try:
        rows = with_columns(read_file(info.key, file, names)).select(COLUMNS)
        return rows.append_column("night", pc.floor(rows["mjd"]).cast(pa.int64()))
    except PARQUET_ERRORS as error:
        raise Damaged(f"{info.key} does not have the rows of packets: {error}") from None
