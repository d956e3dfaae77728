"""The clock. The code in `alerts` does not read the clock: its callers pass the time."""

import time
from datetime import UTC, datetime

from stampede.runtime.timescale import MJD_TAI_OF_1970


def now_mjd() -> float:
    """The present time, MJD TAI in days."""
    return mjd(now())


def mjd(when: datetime) -> float:
    """A time as MJD TAI in days."""
    return MJD_TAI_OF_1970 + when.timestamp() / 86400


def now() -> datetime:
    """The present time by this machine's clock, in UTC."""
    return datetime.fromtimestamp(time.time(), UTC)


class Stopwatch:
    """Seconds by stage: each lap is the time since the last one."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._last = time.perf_counter()

    def lap(self, stage: str) -> None:
        """End a stage."""
        now = time.perf_counter()
        self.laps[stage] = self.laps.get(stage, 0.0) + now - self._last
        self._last = now
