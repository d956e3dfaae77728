"""Counts dead letters by the status with which their alerts were refused."""

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged, NotFound
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.integrity.dead_letter_offsets import DeadLetterOffsets
from stampede.store.integrity.verified_objects import read_columns
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import Coverage, arrays, split_topic_key
from stampede.telemetry.logs import get_logger

log = get_logger()

NO_ANSWER = "no answer"
OTHER = "other"
"""A status that is no number of HTTP: it comes from the event, so it may be any text."""
UNREAD = "unread"
"""Letters that cannot be read, or that are gone."""
_PLACE = ("topic", "partition", "offset")
_STATUS = "^[1-5][0-9]{2}$"


class LetterCodes:
    """The status codes of a table's dead letters.

    It reads places and codes of an object at a time, never the data of a letter.
    """

    def __init__(self, objects: Objects, letters: DeadLetterOffsets, table: str) -> None:
        self._objects, self._letters, self._table = objects, letters, table

    def counts(self, offsets: Coverage) -> dict[str, int]:
        """How many of these offsets have a letter of each status.

        Topics go by their names. Of several letters of one offset the least status counts. The
        counts have the sum `len(offsets)`. Raises `StoreDown`.
        """
        parts, done = [], set[ObjectInfo]()
        while new := [info for info in self._holding(offsets) if info not in done]:
            gone = False
            for info in new:
                done.add(info)
                try:
                    parts.append(self._read(info, offsets))
                except Damaged as error:
                    log.error("dead letters not counted", key=info.key, why=error.message)
                except NotFound:
                    gone = True
            if not gone:
                break
            # A purge or a merge has put them into other objects, unless they are purged.
            self._letters.of_table(self._table)
        found = _counts(parts)
        unread = len(offsets) - sum(found.values())
        return found | ({UNREAD: unread} if unread else {})

    def _holding(self, offsets: Coverage) -> list[ObjectInfo]:
        """The objects that have letters of these offsets."""
        held = self._letters.objects(self._table)
        return [info for info, each in held.items() if offsets - by_name(each) != offsets]

    def _read(self, info: ObjectInfo, offsets: Coverage) -> pa.Table:
        """Place and code of the letters of these offsets in an object.

        Raises `NotFound`, `Damaged`, `StoreDown`.
        """
        rows = read_columns(self._objects, info, [*_PLACE, "code"])
        rows = rows.filter(rows["offset"].is_valid())
        names = [split_topic_key(each)[0] for each in rows["topic"].to_pylist()]
        rows = rows.set_column(rows.column_names.index("topic"), "topic", pa.array(names, "string"))
        wanted = np.zeros(rows.num_rows, bool)
        places = rows["offset"].to_numpy()
        for (topic, partition), spans in arrays(offsets).items():
            here = pc.and_(pc.equal(rows["topic"], topic), pc.equal(rows["partition"], partition))
            span = np.searchsorted(spans[:, 0], places, "right") - 1
            wanted |= here.to_numpy() & (span >= 0) & (places < spans[span, 1])
        return rows.filter(pa.array(wanted))


def by_name(coverage: Coverage) -> Coverage:
    """The offsets of messages, under the names of their topics, without Kafka's ids."""
    messages, _ = coverage.split()
    return messages.renamed({key: split_topic_key(key)[0] for key, _ in messages.partitions()})


def _counts(parts: list[pa.Table]) -> dict[str, int]:
    if not parts:
        return {}
    rows = pa.concat_tables(parts)
    codes = rows["code"]
    is_status = pc.match_substring_regex(codes, _STATUS)
    codes = pc.if_else(is_status, codes, OTHER)  # null stays null
    rows = rows.set_column(rows.column_names.index("code"), "code", pc.fill_null(codes, NO_ANSWER))
    each = rows.group_by([*_PLACE]).aggregate([("code", "min")])
    counted = each.group_by(["code_min"]).aggregate([("code_min", "count")])
    pairs = zip(
        *(counted[name].to_pylist() for name in ("code_min", "code_min_count")), strict=True
    )
    return dict(sorted(pairs))
