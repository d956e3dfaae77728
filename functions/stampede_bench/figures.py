"""What a benchmark gives: figures, each with its unit and what it is held against."""

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from stampede.progress import Progress


class Rival(NamedTuple):
    """What a figure stands beside: the same work done otherwise, or a limit of this machine.

    Both were measured in the same run, in the same unit, so that their ratio means something
    where absolute figures swing.
    """

    what: str
    value: float


class Must(NamedTuple):
    """What the figure has to reach: ``relation`` is ``<=`` or ``>=``; its ratio, if `ratio`."""

    relation: str
    value: float
    ratio: bool = False


class Figure(NamedTuple):
    """One measured number.

    Attributes
    ----------
    subject
        What was measured, in one line; figures of one subject make one table.
    name
        Which number of it.
    spread
        Least and greatest of several rounds, of which `value` is the median.
    aim
        What it is hoped to reach beyond what it must.
    """

    subject: str
    name: str
    value: float
    unit: str
    rival: Rival | None = None
    must: Must | None = None
    spread: tuple[float, float] | None = None
    aim: Must | None = None

    @property
    def ratio(self) -> float | None:
        """The figure in units of its rival's."""
        return self.value / self.rival.value if self.rival and self.rival.value else None

    @property
    def met(self) -> bool | None:
        """Whether it is as it must be; None where nothing is asked of it."""
        return self._reaches(self.must)

    @property
    def aimed(self) -> bool | None:
        """Whether it is as it is hoped to be; None where nothing is."""
        return self._reaches(self.aim)

    @property
    def judged(self) -> float:
        """The number that has to be reached, the value or the ratio."""
        if self.must and self.must.ratio:
            return self.ratio or 0.0
        return self.value

    def _reaches(self, must: Must | None) -> bool | None:
        if must is None:
            return None
        found = (self.ratio or 0.0) if must.ratio else self.value
        return found >= must.value if must.relation == ">=" else found <= must.value


class Context(NamedTuple):
    """What a benchmark is given.

    Attributes
    ----------
    quick
        Less than a minute is wanted: fewer alerts, fewer rounds.
    scratch
        An empty directory that is removed afterwards.
    real
        Directory of real alerts, where there is one.
    install
        Consent to install Debian packages.
    scale
        Multiplies how much is measured; the tests make it small.
    """

    quick: bool
    scratch: Path
    progress: Progress
    real: Path | None = None
    install: bool = False
    scale: float = 1.0

    def scaled(self, thorough: int, quick: int, least: int = 1) -> int:
        """A count: the one of a thorough or of a quick run, times `scale`."""
        return max(least, round((quick if self.quick else thorough) * self.scale))


Measure = Callable[[Context], Iterator[Figure]]


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile: a value that was measured, never one in between."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)]


def over_rounds(rounds: Sequence[Sequence[Figure]]) -> Iterator[Figure]:
    """The rounds of one measurement as one: medians, with the least and the greatest.

    The rival is that of the median's own round, so their ratio is one that was measured. Where
    the ratio has to be reached, the round is that of the median ratio.
    """
    same: dict[tuple, list[Figure]] = {}
    for figure in chain(*rounds):
        key = figure.subject, figure.name, figure.rival and figure.rival.what
        same.setdefault(key, []).append(figure)
    for figures in same.values():
        middle = sorted(figures, key=lambda figure: figure.judged)[(len(figures) - 1) // 2]
        values = [figure.value for figure in figures]
        yield middle._replace(spread=(min(values), max(values)) if len(values) > 1 else None)
