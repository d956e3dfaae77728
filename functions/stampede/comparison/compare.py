"""What this store and another archive have of a night, from the entries of its proof."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from stampede.errors import Damaged, SetupError
from stampede.proofs.leaves import ids_of, no_entries, united, without
from stampede.proofs.night_proof import latest_of, nights_of
from stampede.store.objects.object_store import Objects

MOST_NAMED = 1000
"""Alerts of a kind of difference that are named in a night; the others are counted."""
EVERY_NIGHT = 0, 1_000_000
Place = tuple[str, int]
"""Survey and night (integer MJD, TAI)."""


class Held(NamedTuple):
    """What an archive has of a night.

    Attributes
    ----------
    entries
        As those of a proof, in order, each once: uint8 of shape (n, 40). Without digests their last
        32 bytes are 0.
    digests
        Whether it is known which record each alert has.
    twice
        Ids of alerts that it has more than once in the same record, int64.
    """

    entries: np.ndarray
    digests: bool = True
    twice: np.ndarray = np.zeros(0, np.int64)


class Archive(Protocol):
    """Another archive.

    Attributes
    ----------
    faults
        What is in it and cannot be compared, with the reason.
    """

    faults: list[str]

    def nights(self) -> list[Place]:
        """The surveys and nights that it has."""
        ...

    def held(self, place: Place, ours: np.ndarray) -> tuple[np.ndarray, Held]:
        """What both have of a night, without entries that are known to be equal: ours, and its.

        Raises `Damaged` if it cannot say what it has.
        """
        ...

    def rest(self) -> np.ndarray:
        """Ids of alerts of which it does not say a night, and that no night has taken."""
        ...


@dataclass(frozen=True)
class Difference:
    """What differs in one night: ids of alerts; of an archive that only counts, the counts.

    Attributes
    ----------
    counts
        How many alerts are here and there, if they differ and nobody says which they are.
    """

    survey: str
    night: int
    only_here: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    only_there: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    other_bytes: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    twice_there: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    counts: tuple[int, int] | None = None

    @property
    def is_equal(self) -> bool:
        """Whether nothing differs."""
        return not self.kinds and self.counts is None

    @property
    def kinds(self) -> dict[str, np.ndarray]:
        """The ids by what differs; none that is empty."""
        kinds = {
            "only here": self.only_here,
            "only there": self.only_there,
            "other bytes": self.other_bytes,
            "twice there": self.twice_there,
        }
        return {name: ids for name, ids in kinds.items() if len(ids)}

    def as_json(self) -> dict[str, Any]:
        """It as JSON; ids are strings."""
        named = {
            name.replace(" ", "_"): {
                "count": len(ids),
                "alert_ids": [str(each) for each in ids[:MOST_NAMED].tolist()],
            }
            for name, ids in self.kinds.items()
        }
        found: dict[str, Any] = {"survey": self.survey, "night": self.night, **named}
        if self.counts:
            found["counts"] = {"here": self.counts[0], "there": self.counts[1]}
        return found


def difference(place: Place, ours: np.ndarray, theirs: Held) -> Difference:
    """How two sets of entries of one night differ."""
    here, there = ids_of(ours), ids_of(theirs.entries)
    other = np.zeros(0, np.int64)
    if theirs.digests:
        both = np.intersect1d(here, there)
        unequal = np.concatenate([without(ours, theirs.entries), without(theirs.entries, ours)])
        other = np.intersect1d(ids_of(unequal), both)
    return Difference(
        *place, np.setdiff1d(here, there), np.setdiff1d(there, here), other, theirs.twice
    )


def differences(
    other: Archive, objects: Objects, surveys: set[str] | None, first: int, last: int
) -> Iterator[Difference]:
    """What differs in each night from `first` to `last`, of these surveys or of all.

    Yields a `Difference` for each night that either has, also if nothing differs. Nights of this
    store are those that have proofs. A night that the archive cannot say is one of its `faults`.
    Only a comparison of everything ends with what `rest` returns.

    Raises `SetupError` if there is no such night, `StoreDown`, `Damaged`, and as the archive does.
    """
    for place in places_of(objects, other.nights(), surveys, first, last):
        entries = united(
            no_entries(), *(p.leaves(objects).read() for p in latest_of(objects, *place))
        )
        try:
            held = other.held(place, entries)
        except Damaged as error:
            other.faults.append(f"{place[0]} {place[1]}: {error.message}")
            continue
        yield difference(place, *held)
    everything = surveys is None and (first, last) == EVERY_NIGHT
    if everything and len(rest := other.rest()):
        yield Difference("any", 0, only_there=rest)


def places_of(
    objects: Objects, others: Iterable[Place], surveys: set[str] | None, first: int, last: int
) -> list[Place]:
    """The places that either has, of those that are asked for, in order.

    Raises `SetupError` if there is none, `StoreDown`.
    """
    both = {*nights_of(objects), *others}
    places = sorted(each for each in both if _asked(each, surveys, first, last))
    if not places:
        raise SetupError(
            "neither has such a night; `stampede proofs make` proves those of this store"
        )
    return places


def _asked(place: Place, surveys: set[str] | None, first: int, last: int) -> bool:
    return (surveys is None or place[0] in surveys) and first <= place[1] <= last
