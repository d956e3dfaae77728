"""Why a detection may never have come as an alert of its own, as far as data can tell."""

from collections.abc import Mapping
from enum import StrEnum

import numpy as np
import pyarrow as pa

from stampede.runtime import lazy_arrow_compute as pc
from stampede.store.runs.merge import one_array

ON_ITS_WAY = 1.0
"""Days for which an alert may still come: a delayed one, or one that waits in Kafka."""
PROCESSED_LATER = 1.0
"""Days from exposure to processing after which no alert is expected. Rubin sends within minutes."""
CUT_NIGHTS = 10
"""Nights of which the least score is that of the survey's cut, so that a new cut is soon known."""
CUT_STEP = 0.05
"""People cut at round scores. So 0.503, the least of many that came, is a cut at 0.5."""


class Cause(StrEnum):
    """Why a detection may not have come as an alert."""

    ON_ITS_WAY = "on its way"
    BEFORE = "before the first alert"
    PROGRAMME = "programme not sent"
    CUT = "below the cut"
    REPROCESSED = "processed later"
    UNEXPLAINED = "unexplained"


CAUSES = tuple(Cause)
UNEXPLAINED = CAUSES.index(Cause.UNEXPLAINED)
"""Number of the cause in `CAUSES`."""


class Known:
    """What is known of the alerts that came, from one window of nights to the next.

    Parameters
    ----------
    first_mjd
        MJD of the first alert of each survey.
    stored
        Observing programmes that are stored.
    now
        MJD of the present.
    """

    def __init__(
        self, first_mjd: Mapping[str, float], stored: frozenset[int] | None, now: float
    ) -> None:
        self.first_mjd, self.stored, self.now = first_mjd, stored, now
        self._programmes: dict[str, set[int]] = {}
        self._least: dict[str, dict[int, float]] = {}

    def add(
        self, survey: str, nights: np.ndarray, scores: np.ndarray, programmes: set[int]
    ) -> None:
        """Learn from alerts that came: night, score (NaN if none), and their programmes."""
        self._programmes.setdefault(survey, set()).update(programmes)
        least = self._least.setdefault(survey, {})
        scored = ~np.isnan(scores)
        found, place = np.unique(nights[scored], return_inverse=True)
        lowest = np.full(len(found), np.inf)
        np.minimum.at(lowest, place, scores[scored])
        for night, score in zip(found.tolist(), lowest.tolist(), strict=True):
            least[night] = min(score, least.get(night, np.inf))

    def cut(self, survey: str, nights: np.ndarray) -> np.ndarray:
        """The survey's cut on each of these nights; -inf if unknown."""
        least = self._least.get(survey, {})
        found, place = np.unique(nights, return_inverse=True)
        cuts = [
            min((least.get(night - ago, np.inf) for ago in range(CUT_NIGHTS)), default=np.inf)
            for night in found.tolist()
        ]
        steps = np.floor(np.array(cuts, float) / CUT_STEP + 1e-6) * CUT_STEP
        return np.where(np.isfinite(steps), steps, -np.inf)[place]

    def sends(self, survey: str, programmes: pa.Array) -> np.ndarray:
        """Whether alerts of these programmes come and are stored; true of null."""
        there = self._programmes.get(survey, set())
        there = there if self.stored is None else there & self.stored
        known = pc.is_in(programmes, pa.array(sorted(there), programmes.type))
        return np.asarray(pc.or_(known, programmes.is_null()))


def with_causes(rows: pa.Table, survey: str, known: Known) -> pa.Table:
    """Rows of one survey with their `night` and the number of their `cause`."""
    mjd = rows["mjd"].to_numpy()
    nights = np.floor(mjd).astype(np.int32)
    with np.errstate(invalid="ignore"):
        is_below = rows["score"].to_numpy() < known.cut(survey, nights) - 1e-6
    later = np.asarray(rows["withdrawn"]) | (
        rows["processed_mjd"].to_numpy() - mjd > PROCESSED_LATER
    )
    sent = known.sends(survey, one_array(rows["programid"]))
    causes = np.select(
        [
            mjd > known.now - ON_ITS_WAY,
            mjd < known.first_mjd.get(survey, np.inf),
            ~sent,
            is_below,
            later,
        ],
        range(UNEXPLAINED),
        UNEXPLAINED,
    )
    return rows.append_column("night", pa.array(nights)).append_column(
        "cause", pa.array(causes.astype(np.int8))
    )
