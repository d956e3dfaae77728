"""Merges raw alerts, file after file; a file goes once the merged one gives back its rows.

The merged file says in its footer which files it has, and how many rows of each. Before a file is
deleted, its rows are compared with those, bit for bit.
"""

from collections.abc import Sequence
from datetime import timedelta

import pyarrow as pa

from stampede.errors import Damaged, NotFound
from stampede.store.compaction.packet_merge import Merge
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.packs.merged_inputs import Merged, MergedInputs
from stampede.store.packs.pack_name import level_of
from stampede.store.packs.raw_alerts import Input, merge_raw, merged_inputs, read_raw, same_rows
from stampede.telemetry.logs import get_logger

log = get_logger()


class RawMerger:
    """Merges the raw alerts of one store.

    Parameters
    ----------
    kept
        How long a file stays after it was merged.
    """

    def __init__(self, objects: Objects, kept: timedelta) -> None:
        self._objects, self._kept = objects, kept
        self._inputs = MergedInputs(objects, kept)
        self._last: tuple[str, dict[str, pa.Table]] = "", {}

    def merged(self, files: Sequence[ObjectInfo]) -> Merged:
        """What was merged of the files of a folder. Raises `StoreDown`."""
        return self._inputs.of(files)

    def merge(self, sources: Sequence[ObjectInfo]) -> Merge:
        """Write one file of several.

        Raises `StoreDown`, and `Damaged` if it is not what was written. A damaged source is left
        out, and named in the log: `scrub` names it too.
        """
        inputs: list[Input] = []
        taken = 0
        for source in sources:
            try:
                rows = read_raw(source.key, self._objects.get(source.key))
            except NotFound:  # another compactor deleted it
                continue
            except Damaged as error:
                log.error("not merged", key=source.key, why=error.message)
                continue
            if not inputs or rows.schema.equals(inputs[0].rows.schema, check_metadata=True):
                inputs.append(Input(source.key, rows))
                taken += source.size
        if len(inputs) < 2:
            return Merge()
        level = 1 + max(level_of(one.key) for one in inputs)
        key, data, whole = merge_raw(inputs, level)
        self._objects.put(key, data, whole)
        read_raw(key, self._objects.get(key))
        return Merge(len(inputs), 1, taken, len(data))

    def delete(self, info: ObjectInfo, into: str) -> bool:
        """Delete a file that was merged into another, if that has its rows; whether it was.

        Raises `StoreDown`.
        """
        proven = self.proven(info, into)
        if proven:
            self._objects.delete(info.key)
        return proven

    def proven(self, info: ObjectInfo, into: str) -> bool:
        """Whether a file that is old enough has the rows of another. Raises `StoreDown`."""
        try:
            return self._has_rows(info, into)
        except (NotFound, Damaged):
            return False

    def is_sound(self, into: str) -> bool:
        """Whether a merged file can be read; if not, what it was merged of is merged again.

        Raises `StoreDown`.
        """
        try:
            return bool(self._content(into))
        except (NotFound, Damaged):
            return False

    def _has_rows(self, info: ObjectInfo, into: str) -> bool:
        if self._objects.now() - self._objects.head(into).modified < self._kept:
            return False
        rows = self._content(into).get(info.key)
        return rows is not None and same_rows(read_raw(info.key, self._objects.get(info.key)), rows)

    def _content(self, into: str) -> dict[str, pa.Table]:
        """The rows of each file that one was merged of; kept, as all of them ask for it."""
        key, content = self._last
        if key != into:
            content = {one.key: one.rows for one in merged_inputs(into, self._objects.get(into))}
            self._last = into, content
        return content
