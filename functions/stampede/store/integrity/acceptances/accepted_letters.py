"""The letters that are accepted as rightly refused, by all decisions together.

Decisions come in any order, at either site, and some may be lacking. So each names those that it
replaces, and what counts for a letter are the decisions about it that no other one replaces. The
letter is accepted if all of these accept it: of two operators who disagree, the one who doubts is
right.
"""

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

from stampede.errors import Damaged, NotFound
from stampede.store.integrity.acceptances.decision import (
    ACCEPTED,
    LETTERS,
    Decision,
    coverage_of,
    read_decision,
)
from stampede.store.objects.object_store import ObjectInfo, Objects
from stampede.store.offsets.coverage import Coverage


class TableAcceptances(NamedTuple):
    """The decisions about the letters of one table.

    Attributes
    ----------
    letters
        The latest acceptance of each accepted letter, by the letter's name.
    counting
        Of each letter that a decision names: the names of those decisions that count.
    coverage
        The offsets of accepted letters, and those before them that are no messages.
    objects
        The objects of the decisions, and the offsets of all letters in each.
    """

    letters: Mapping[str, Decision]
    counting: Mapping[str, frozenset[str]]
    coverage: Coverage
    objects: Mapping[ObjectInfo, Coverage]


NONE = TableAcceptances({}, {}, Coverage(), {})


class AcceptedLetters:
    """The accepted letters of a store.

    An object is read once, however often it is asked for: its name is a digest. Use it in one
    thread at a time.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._last: dict[str, tuple[dict[ObjectInfo, Decision], TableAcceptances]] = {}

    def of_table(self, table: str, quarantined: dict[str, str] | None = None) -> TableAcceptances:
        """The decisions about a table's letters; the same object if there is no other decision.

        One that cannot be read or verified does not count, so its letters are not accepted. It is
        added to `quarantined`, by key with the reason. Raises `StoreDown`.
        """
        known, before = self._last.get(table, ({}, NONE))
        found: dict[ObjectInfo, Decision] = {}
        for info in self._objects.list(f"{ACCEPTED}{table}/"):
            try:
                found[info] = known.get(info) or read_decision(self._objects, info)
            except NotFound:
                continue
            except Damaged as error:
                if quarantined is not None:
                    quarantined[info.key] = error.message
        if found.keys() != known.keys():
            before = acceptances_of(found)
        self._last[table] = found, before
        return before


def acceptances_of(found: Mapping[ObjectInfo, Decision]) -> TableAcceptances:
    """What these decisions say together."""
    about: dict[str, list[Decision]] = {}
    for decision in found.values():
        for letter in decision.rows["letter"].to_pylist():
            about.setdefault(letter, []).append(decision)
    counting = {letter: _counting(some) for letter, some in about.items()}
    letters = {
        letter: max(some, key=lambda one: (one.at, one.digest))
        for letter, some in counting.items()
        if all(one.accepted for one in some)
    }
    rows = pa.concat_tables([LETTERS.empty_table(), *(one.rows for one in found.values())])
    accepted = pa.array([letter in letters for letter in rows["letter"].to_pylist()], pa.bool_())
    return TableAcceptances(
        letters,
        {letter: frozenset(one.digest for one in some) for letter, some in counting.items()},
        coverage_of(rows.filter(accepted)),
        {info: coverage_of(one.rows) for info, one in found.items()},
    )


def _counting(some: list[Decision]) -> list[Decision]:
    """The decisions about a letter that none of the others replaces."""
    replaced = frozenset().union(*(one.replaces for one in some))
    return [one for one in some if one.digest not in replaced]
