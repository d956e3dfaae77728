"""What proofs need of a pack of packets: ids, digests and offsets, and neither packet nor image."""

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged
from stampede.proofs.leaves import entries_of
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.integrity.verified_objects import footer_of
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import Coverage, intervals_of
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


@dataclass
class Found:
    """What packs say of one survey and night."""

    entries: list[np.ndarray] = field(default_factory=list)
    offsets: dict[str, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))
    whole: bool = True

    def add(self, rows: pa.Table) -> None:
        """Take the rows of a pack that are of this survey and night."""
        known = rows.filter(rows["sha256"].is_valid())
        self.whole &= known.num_rows == rows.num_rows
        self.entries.append(entries_of(known["alert_id"], known["sha256"]))
        known = known.filter(known["offset"].is_valid())
        for topic in pc.unique(known["topic"]).to_pylist():
            some = known.filter(pc.equal(known["topic"], topic))
            columns = (some[name].to_numpy() for name in ("partition", "offset"))
            self.offsets[topic].append(np.stack([*columns], axis=1))

    def coverage(self) -> Coverage:
        """The offsets of these alerts."""
        spans = {}
        for topic, parts in self.offsets.items():
            places = np.concatenate(parts)
            for partition in np.unique(places[:, 0]).tolist():
                starts = places[places[:, 0] == partition, 1]
                spans[topic, partition] = intervals_of(starts)
        return Coverage(spans)
