"""What a proof says of Kafka's offsets: which are its alerts', and what became of those between."""

import json
from typing import Any

import numpy as np

from stampede.proofs.letter_codes import LetterCodes, by_name
from stampede.store.integrity.dead_letter_offsets import DeadLetterOffsets
from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage, arrays
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table


class OffsetAccounts:
    """The offsets of a store at one time: in the table `detections`, and in dead letters.

    Topics go by their names, without Kafka's ids. Raises `StoreDown`.
    """

    def __init__(self, objects: Objects) -> None:
        table = Table(objects, DETECTIONS, 0)
        try:
            self._stored = by_name(table.coverage())
        finally:
            table.close()
        letters = DeadLetterOffsets(objects)
        self._dead = by_name(letters.of_table(DETECTIONS.name))
        self._codes = LetterCodes(objects, letters, DETECTIONS.name)

    def between(self, night: Coverage) -> dict[str, Any]:
        """Of each partition that `night` has offsets of, from its first to its last of them.

        Returns
        -------
        dict
            ``offsets``, intervals by ``topic/partition``: ``stored``, those of the night;
            ``other_nights``, whose alerts are of another night or survey; ``dead_lettered``; and
            ``missing``, which are in none of these. ``dead_letters``, if there are any: how many
            there are of each status.
        """
        whole = Coverage(
            {
                place: np.array([[spans[0, 0], spans[-1, 1]]])
                for place, spans in arrays(night).items()
            }
        )
        left = whole - night
        other = left - (left - self._stored)
        dead = left - (left - self._dead) - other
        parts = {
            "stored": night,
            "other_nights": other,
            "dead_lettered": dead,
            "missing": left - other - dead,
        }
        offsets = {name: json.loads(coverage.to_json()) for name, coverage in parts.items()}
        codes = {"dead_letters": self._codes.counts(dead)} if dead else {}
        return {"offsets": offsets, **codes}
