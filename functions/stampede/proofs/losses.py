"""What a store has of the entries of a proof: which of them are lost, and what it has besides."""

from typing import Any

import numpy as np

from stampede.proofs.leaves import ID_BYTES, WIDTH, entries_of, no_entries, united
from stampede.proofs.night_rows import NightRows, Report, silent
from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.objects.object_store import Objects

MOST_NAMED = 1000
"""Lost entries that a proof names; the others are counted."""


class Losses:
    """How the packs of a night differ from entries that were proven. Raises `StoreDown`.

    Parameters
    ----------
    proven
        The entries, in order: uint8 of shape (n, 40).

    Attributes
    ----------
    lost
        Those that no pack has, in order.
    new
        Entries of packs that are not among them, in order.
    damaged
        Why a pack could not be read, by its key. What it has may be among the lost.
    """

    def __init__(
        self,
        objects: Objects,
        survey: str,
        night: int,
        proven: np.ndarray,
        report: Report = silent,
    ) -> None:
        # Of 10^7 alerts one bit and not 40 bytes are held besides `proven`.
        names, held = _names(proven), np.zeros(len(proven), bool)
        new = [no_entries()]
        packs = NightRows(objects, night, report)
        for rows in packs:
            known = pc.and_(pc.equal(rows["survey"], survey), rows["sha256"].is_valid())
            some = rows.filter(known)
            entries = entries_of(some["alert_id"], some["sha256"])
            places = names.searchsorted(_names(entries))
            there = places < len(names)
            there[there] = names[places[there]] == _names(entries)[there]
            held[places[there]] = True
            new.append(entries[~there])
        self.lost, self.new = proven[~held], united(*new)
        self.damaged = packs.damaged

    @property
    def count(self) -> int:
        """How many entries are lost."""
        return len(self.lost)

    def as_json(self) -> dict[str, Any]:
        """What a proof says of them: the first `MOST_NAMED` by id and digest; empty if none is."""
        if not self.count:
            return {}
        named = [
            {
                "alert_id": str(int.from_bytes(row[:ID_BYTES], "big")),
                "sha256": row[ID_BYTES:].hex(),
            }
            for row in map(np.ndarray.tobytes, self.lost[:MOST_NAMED])
        ]
        return {"entries": self.count, "named": named}


def _names(entries: np.ndarray) -> np.ndarray:
    """Entries as values that numpy compares byte by byte, shape (n,)."""
    return np.ascontiguousarray(entries).view(f"S{WIDTH}").ravel()
