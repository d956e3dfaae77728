"""What histories know of the last nights: a summary that `reconcile` keeps as a saved state.

Histories repeat detections. Each should have come as an alert of its own
(docs/how-to/alerts-that-never-came.md).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from stampede.store.integrity import saved_state
from stampede.store.integrity.reconcile_state import PREFIX
from stampede.store.objects.object_store import Objects

FOLDER = f"{PREFIX}histories/"
MUCH, MUCH_SHARE = 10, 0.25
"""Unexplained missing detections of a visit's detector, and their share of its detections, that
count as much."""


@dataclass(frozen=True)
class Lacking:
    """A detector of a visit, with detections that never came as an alert, for no known cause.

    Attributes
    ----------
    visit, detector
        None if the survey does not say.
    missing, came
        Detections that did not come, and those of the same detector and visit that did.
    ids
        Ids of a few that did not come.
    """

    visit: int | None
    detector: int | None
    missing: int
    came: int
    ids: list[int]

    @property
    def is_much(self) -> bool:
        """Whether so much is missing that it is hardly chance."""
        return self.missing >= max(MUCH, MUCH_SHARE * (self.missing + self.came))

    @property
    def rank(self) -> tuple[bool, int, int]:
        """The least is the worst: those of which much is missing first, then by how many are."""
        return not self.is_much, -self.missing, self.came


@dataclass(frozen=True)
class ComparedNight:
    """What histories know of one survey and night.

    Attributes
    ----------
    night
        Integer MJD.
    came
        Detections that came as an alert.
    missing
        How many detections never came, by cause.
    much
        How many detectors of visits miss much.
    worst
        Those with unexplained missing detections, the most first; not all if there are many.
    """

    survey: str
    night: int
    came: int
    missing: Mapping[str, int]
    much: int
    worst: list[Lacking]


@dataclass(frozen=True)
class HistoriesSummary:
    """What histories know of the last nights, and when somebody looked.

    Attributes
    ----------
    at
        When the last look began, by the store's clock.
    looked
        The nights that it looked at.
    times
        How often these nights were compared to the end.
    why
        Why the last look did not come to its end; empty if it did.
    made
        When the look began whose results these are; None before the first.
    nights
        Its results, by night and survey.
    """

    at: datetime
    looked: list[int]
    times: int = 0
    why: str = ""
    made: datetime | None = None
    nights: list[ComparedNight] = field(default_factory=list)


def load(objects: Objects) -> HistoriesSummary | None:
    """The latest summary; None if there is none that is whole. Raises `StoreDown`."""
    return saved_state.load(objects, FOLDER, HistoriesSummary)


def save(objects: Objects, summary: HistoriesSummary) -> None:
    """Write a summary, then delete the earlier ones. Raises `StoreDown`."""
    saved_state.save(objects, FOLDER, summary)
