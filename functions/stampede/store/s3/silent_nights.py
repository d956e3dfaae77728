"""Nights whose packs do not come, as when the pool of their storage class is away.

The rest of the store answers then. A GET of such a pack waits for a minute and a half, and holds a
thread: a few of them would hold all threads, and readers of other nights would wait too. So after
some failures in a row one GET at a time asks for packs of that night, and others fail at once.
"""

import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from stampede.errors import StampedeError, StoreDown, StoreRefused

FAILURES = 3
"""So many GETs of a night without a response in a row, and the night is silent."""
HELD_SECONDS = 1.0
"""A GET that fails sooner, as when nothing listens, holds nobody up and does not count."""
PAUSE_SECONDS = 10.0
"""How long nobody asks after a GET of a silent night has failed."""
_NIGHT = re.compile(r"\w+/\d+/")


class SilentNights:
    """The nights of each kind of pack that are silent. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures = Counter[str]()
        self._asked = set[str]()  # silent nights of which a GET is under way
        self._again: dict[str, float] = {}  # when to ask again, by the monotonic clock

    def silent(self, key: str) -> bool:
        """Whether the packs of this one's night do not come."""
        return self._failures[_night(key)] >= FAILURES

    def came(self, key: str) -> None:
        """Note that the store answered for a key."""
        with self._lock:
            self._failures.pop(_night(key), None)
            self._again.pop(_night(key), None)

    def failed(self, key: str, begun: float) -> None:
        """Note that a GET of a pack got no answer; it began then by the monotonic clock."""
        now = time.monotonic()
        if (night := _night(key)) and now - begun >= HELD_SECONDS:
            with self._lock:
                self._failures[night] += 1
                self._again[night] = now + PAUSE_SECONDS

    @contextmanager
    def asking(self, key: str) -> Iterator[None]:
        """Note how a GET ends. Raises `StoreDown` in its place if its night is silent."""
        night = _night(key)
        alone = self.silent(key)
        if alone:
            with self._lock:
                if night in self._asked or time.monotonic() < self._again.get(night, 0):
                    raise StoreDown(
                        f"the store has not sent what was asked of {night} several times; if it "
                        "sends other nights, is a pool of a storage class away?"
                    )
                self._asked.add(night)
        begun = time.monotonic()
        try:
            yield
        except StampedeError as error:
            if isinstance(error, StoreDown) and not isinstance(error, StoreRefused):
                self.failed(key, begun)
            else:
                self.came(key)
            raise
        else:
            self.came(key)
        finally:
            if alone:
                with self._lock:
                    self._asked.discard(night)


def _night(key: str) -> str:
    """The folder of a night that a pack lies in; empty for any other key."""
    found = _NIGHT.match(key)
    return found[0] if found else ""
