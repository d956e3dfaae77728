"""A store in a folder with a clock of its own, so that it can be made again with the same bytes."""

import os
import random
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from stampede.store.objects.filesystem import DirectoryObjects

BEGIN = datetime(2026, 11, 1, tzinfo=UTC)
"""After the simulated alerts, and before the first release."""


class Clock:
    """A clock that stands still until it is advanced."""

    def __init__(self) -> None:
        self.now = BEGIN

    def advance(self, **length: float) -> None:
        """Advance by a `timedelta`. What is drawn at random after it is the same each time."""
        self.now += timedelta(**length)
        random.seed(self.now.timestamp())


class _Clocked(DirectoryObjects):
    def __init__(self, clock: Clock, root: Path) -> None:
        super().__init__(root)
        self._clock = clock

    def put_stream(self, key: str, pieces: Iterable[bytes | memoryview]) -> None:
        super().put_stream(key, pieces)
        set_time(self.root / key, int(self._clock.now.timestamp()))

    def now(self) -> datetime:
        return self._clock.now


def set_time(path: Path, seconds: int) -> None:
    """Set when a file was changed, in seconds since 1970-01-01 UTC."""
    os.utime(path, ns=(seconds * 10**9,) * 2)


@contextmanager
def clocked() -> Iterator[Clock]:
    """Let all stores in folders, and the handlers, go by the clock that this gives."""
    clock = Clock()
    clock.advance()
    time = SimpleNamespace(now=lambda _: clock.now)
    with ExitStack() as stack:
        stack.enter_context(patch("stampede.store.open.DirectoryObjects", partial(_Clocked, clock)))
        for module in ("compact", "reconcile.reconciler"):
            stack.enter_context(patch(f"stampede.handlers.{module}.datetime", time))
        yield clock
