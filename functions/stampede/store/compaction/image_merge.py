"""Merges packs of images: writes the merged pack, then the run that locates what it holds.

The rows that readers get are merged, and no others. The packs are deleted later, as orphans: once
each of their rows was found in winning packs in every byte (`store/integrity/orphans.py`).
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from stampede.errors import Damaged, NotFound
from stampede.store.compaction.packet_merge import Merge
from stampede.store.integrity.orphans import Orphans, by_place
from stampede.store.integrity.verified_objects import read_columns
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.packs import pack_name
from stampede.store.packs.merged_images import (
    Part,
    coverage_of,
    merge_cutouts,
    merge_thumbnails,
)
from stampede.store.packs.pack import Pack, check_digest, read_content
from stampede.store.packs.pack_name import PackName
from stampede.store.runs.schema import CUTOUT_PACKS, PackSpec
from stampede.store.tables.table import Table
from stampede.telemetry.logs import get_logger

log = get_logger()

Place: TypeAlias = tuple[Any, ...]


class ImageMerger:
    """Merges packs of one kind in one store.

    Parameters
    ----------
    table
        The table that locates their images, refreshed.
    kept
        How long a pack stays after it was merged.
    """

    def __init__(self, objects: Objects, spec: PackSpec, table: Table, kept: timedelta) -> None:
        self._objects, self._spec, self._table = objects, spec, table
        self._message = [name for name in spec.locations.key if name != "kind"]
        self._orphans = Orphans(objects, kept)

    def close(self) -> None:
        """Stop the threads."""
        self._orphans.close()

    def merge(self, sources: Sequence[ObjectInfo]) -> Merge:
        """Merge those rows of packs that readers get.

        Raises `Damaged` if the merged pack is, `StoreDown`. A damaged source is left out, and named
        in the log: `scrub` names it too.
        """
        parts: list[Part] = []
        redrawn: dict[Place, dict[str, Any]] = {}
        taken = 0
        for source in sources:
            try:
                part, winners = self._part(source)
            except NotFound:  # another compactor, or retention, deleted it
                continue
            except Damaged as error:
                log.error("not merged", key=source.key, why=error.message)
                continue
            if winners:
                parts.append(part)
                redrawn |= winners
                taken += source.size
        if len(parts) < 2:
            return Merge()
        pack = self._merged(parts)
        pack = pack._replace(locations=_as_drawn(pack.locations, self._spec, redrawn))
        self._store(pack)
        self._table.append(pack.locations, coverage_of(parts))
        return Merge(len(parts), 1, taken, len(pack.data))

    def _store(self, pack: Pack) -> None:
        """Put a pack, and read it back. Raises `Damaged` if it is not what was written."""
        self._objects.put(pack.key, memoryview(pack.data), pack.sha256)
        check_digest(pack.key, self._objects.get(pack.key))

    def is_read(self, info: ObjectInfo) -> bool:
        """Whether readers get images from a pack: then its merge was not finished, if it began.

        Raises `StoreDown`.
        """
        try:
            ids = read_columns(self._objects, info, ["alert_id"])["alert_id"].unique().to_pylist()
        except (NotFound, Damaged):
            return False
        return info.key in self._table.lookup(ids)["pack"].to_pylist()

    def delete(self, info: ObjectInfo) -> bool:
        """Delete a pack that was merged, if it is an orphan. Raises `StoreDown`."""
        orphan = self._orphans.proven(info.key)
        if orphan:
            self._objects.delete(info.key)
        return orphan

    def _part(self, source: ObjectInfo) -> tuple[Part, dict[Place, dict[str, Any]]]:
        """A pack, which of its rows readers get, and the rows of the table that locate them."""
        found: list[pa.Table] = []

        def claims(ids: list[int]) -> pa.Table:
            found.append(self._table.lookup(ids))
            return found[0]

        key, spec = source.key, self._spec
        content = read_content(self._objects.get(key), spec, key, claims)
        rows = content.pack.locations
        table = found[0] if found else self._table.lookup(rows["alert_id"].unique().to_pylist())
        winners = by_place(table, spec)
        places = list(zip(*(rows[name].to_pylist() for name in spec.locations.key), strict=True))
        won = {place: row for place in places if (row := winners.get(place)) and row["pack"] == key}
        # An image that was not sent wins nothing: it goes with its message, or is all of it.
        messages = list(zip(*(rows[name].to_pylist() for name in self._message), strict=True))
        sent = rows["pack"].is_valid().to_pylist()
        here = {message for place, message in zip(places, messages, strict=True) if place in won}
        here |= {*messages} - {
            message for message, there in zip(messages, sent, strict=True) if there
        }
        wanted = [
            place in won or (not there and message in here)
            for place, message, there in zip(places, messages, sent, strict=True)
        ]
        return Part(content, np.array(wanted, bool)), won

    def _merged(self, parts: Sequence[Part]) -> Pack:
        names = [PackName.parse(part.content.pack.key) for part in parts]
        named = [name for name in names if name]
        merged = pack_name.Merged(
            1 + max(name.level for name in named), min(name.first for name in named), ""
        )
        merge = merge_cutouts if self._spec is CUTOUT_PACKS else merge_thumbnails
        inputs = [part.content.pack.key for part in parts]
        return merge(parts, named[0].programids, merged, inputs)


def _as_drawn(
    locations: pa.Table, spec: PackSpec, winners: Mapping[Place, Mapping[str, Any]]
) -> pa.Table:
    """Locations that say how often each image was drawn again, as the rows before them do."""
    if "redrawn" not in locations.schema.names:
        return locations
    places = zip(*(locations[name].to_pylist() for name in spec.locations.key), strict=True)
    numbers = [winners[place]["redrawn"] for place in places]
    at = locations.schema.get_field_index("redrawn")
    return locations.set_column(at, locations.schema.field(at), pa.array(numbers, pa.int32()))
