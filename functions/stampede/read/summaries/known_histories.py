"""What histories know of the last nights, as `reconcile` keeps it: one small object."""

from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import Any

from stampede.lookup import histories_summary
from stampede.lookup.histories_summary import HistoriesSummary
from stampede.lookup.ttl_cache import TtlCache
from stampede.store.objects.object_store import Objects

MAX_AGE = 60.0
"""Seconds: it changes once a day."""


class KnownHistories:
    """Reads it again if the last reading is older than `MAX_AGE`. Use it in one thread."""

    def __init__(self, objects: Objects) -> None:
        self._summary = TtlCache(partial(histories_summary.load, objects), MAX_AGE)

    def summary(self) -> HistoriesSummary | None:
        """The latest summary; None if there is none. Raises `StoreDown`."""
        return self._summary()


def as_json(summary: HistoriesSummary | None) -> dict[str, Any] | None:
    """A summary for programs: ids as text, since they are larger than a number of JavaScript."""
    if not summary:
        return None
    nights = [asdict(night) for night in summary.nights]
    for night in nights:
        night["lacking_detectors"] = night.pop("much")
        for detector in night["worst"]:
            detector["ids"] = [*map(str, detector["ids"])]
    return {
        "made": _text(summary.made),
        "last_attempt": _text(summary.at),
        "error": summary.why or None,
        "nights": nights,
    }


def _text(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
