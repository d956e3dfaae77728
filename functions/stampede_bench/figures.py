"""The results of a benchmark: figures, each with its unit and what it is compared with."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from stampede.runtime.progress import Progress


class Rival(NamedTuple):
    """What a figure is compared with: another way to do the same work, or a limit of this machine.

    Both are measured in the same run and in the same unit. On a busy machine their ratio is
    steadier than absolute figures.
    """

    what: str
    value: float


class Bound(NamedTuple):
    """The bound of a figure, or of its ratio if `ratio`: ``relation`` is ``<=`` or ``>=``."""

    relation: str
    value: float
    ratio: bool = False


class Figure(NamedTuple):
    """One measured number.

    Attributes
    ----------
    subject
        What was measured, in one line. The figures of one subject make one table.
    name
        What the number is.
    spread
        The least and the greatest value of several rounds, of which `value` is the median.
    requirement
        The bound: a benchmark run fails if the figure misses it.
    target
        A stricter bound that is only reported.
    note
        What a reader must know of it, for the lines below its table.
    """

    subject: str
    name: str
    value: float
    unit: str
    rival: Rival | None = None
    requirement: Bound | None = None
    spread: tuple[float, float] | None = None
    target: Bound | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """The value divided by the rival's; None without a rival."""
        return self.value / self.rival.value if self.rival and self.rival.value else None

    @property
    def met(self) -> bool | None:
        """Whether it is within its bound; None without a bound."""
        return self._reaches(self.requirement)

    @property
    def on_target(self) -> bool | None:
        """Whether it reaches its target; None without a target."""
        return self._reaches(self.target)

    @property
    def judged(self) -> float:
        """The number that is compared with the bound: the value or the ratio."""
        if self.requirement and self.requirement.ratio:
            return self.ratio or 0.0
        return self.value

    def _reaches(self, requirement: Bound | None) -> bool | None:
        if requirement is None:
            return None
        found = (self.ratio or 0.0) if requirement.ratio else self.value
        return (
            found >= requirement.value
            if requirement.relation == ">="
            else found <= requirement.value
        )


class Context(NamedTuple):
    """The circumstances of a benchmark.

    Attributes
    ----------
    quick
        Take less than a minute: fewer alerts, fewer rounds.
    scratch
        An empty directory, which is removed afterwards.
    progress
        Called with lines about the progress.
    real
        Directory of real alerts; None to use only simulated ones.
    install
        Consent to install Debian packages.
    pool
        What `layout` measures: ``ec`` for an erasure-coded pool on three OSDs; None for all else.
    scale
        Factor on all counts, see `scaled`; tests make it small.
    peers
        Other systems by name, each with the folder of its checkout.
    """

    quick: bool
    scratch: Path
    progress: Progress
    real: Path | None = None
    install: bool = False
    pool: str | None = None
    scale: float = 1.0
    peers: tuple[tuple[str, Path], ...] = ()

    def scaled(self, thorough: int, quick: int, least: int = 1) -> int:
        """A count: the one of a thorough or of a quick run, times `scale`."""
        return max(least, round((quick if self.quick else thorough) * self.scale))


Measure = Callable[[Context], Iterator[Figure]]


def percentile(values: Sequence[float], share: float) -> float:
    """The nearest-rank percentile, which is always one of the values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share / 100 * len(ordered)) - 1)]


def over_rounds(rounds: Sequence[Sequence[Figure]], by_ratio: bool = False) -> Iterator[Figure]:
    """Combine the rounds of one measurement: medians, with the least and the greatest value.

    Each rival is from the same round as the median, so that their ratio was really measured. If
    the bound is on the ratio, or with `by_ratio`, that is the round with the median ratio. Measure
    an odd number of rounds: of an even one the lower of the two in the middle is taken.
    """
    by_name: dict[tuple[str, str, str | None], list[Figure]] = {}
    for figure in chain(*rounds):
        key = figure.subject, figure.name, figure.rival and figure.rival.what
        by_name.setdefault(key, []).append(figure)
    for figures in by_name.values():
        in_order = sorted(figures, key=lambda one: (by_ratio and one.ratio) or one.judged)
        middle = in_order[(len(figures) - 1) // 2]
        values = [figure.value for figure in figures]
        yield middle._replace(spread=(min(values), max(values)) if len(values) > 1 else None)


def by_subject(figures: Iterable[Figure]) -> Iterator[Figure]:
    """The same figures, those of a subject after each other, so that they make one table."""
    found: dict[str, list[Figure]] = {}
    for figure in figures:
        found.setdefault(figure.subject, []).append(figure)
    yield from chain(*found.values())
