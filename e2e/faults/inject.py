"""The faults of a campaign: which kinds there are, and which is done next."""

import random
from collections import Counter
from collections.abc import Callable, Mapping

Kind = Callable[[], str | None]
"""Does a fault; returns its name and what was done, or None if it cannot be done now."""


class Injector:
    """Does faults to a running system: each kind once as soon as it can be done, then at random.

    Parameters
    ----------
    kinds
        Each kind, and how often it is chosen.

    Attributes
    ----------
    done
        How many faults of each name were done.
    """

    def __init__(self, chance: random.Random, kinds: Mapping[Kind, int]) -> None:
        self._chance, self._kinds = chance, kinds
        self._first = list(kinds)
        chance.shuffle(self._first)
        self.done: Counter[str] = Counter()

    def one(self) -> str:
        """Do one fault; its name and what was done."""
        for kind in list(self._first):
            if done := kind():
                self._first.remove(kind)
                return self._count(done)
        ways, weights = list(self._kinds), list(self._kinds.values())
        while True:
            if done := self._chance.choices(ways, weights)[0]():
                return self._count(done)

    def total(self) -> int:
        """How many faults were done."""
        return self.done.total()

    @property
    def left_out(self) -> list[str]:
        """The kinds that were never done."""
        return [kind.__name__ for kind in self._first]

    def _count(self, done: str) -> str:
        self.done[done.partition(" ")[0]] += 1
        return done
