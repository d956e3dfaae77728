"""Which offsets of one partition may be committed: those before the first unfinished one."""

from collections import deque


class Offsets:
    """The offsets of one partition that were taken and not yet committed.

    Events finish in any order, but Kafka remembers one number. So the position stops at the
    first unfinished event: after a crash an event may be sent again, but none is left out.
    Offsets that Kafka skips (compacted, or of a transaction) count as finished.
    """

    def __init__(self) -> None:
        self._taken: deque[int] = deque()  # in order; the first one is not finished
        self._finished: set[int] = set()
        self._position: int | None = None

    @property
    def position(self) -> int | None:
        """The offset to commit: all taken below it are finished. None before the first take."""
        return self._position

    @property
    def unfinished(self) -> int:
        """How many offsets were taken and are not finished."""
        return len(self._taken) - len(self._finished)

    def take(self, offset: int) -> None:
        """Note that the event at `offset` is in flight. Offsets must rise."""
        if self._taken and offset <= self._taken[-1]:
            raise ValueError(f"offset {offset} after {self._taken[-1]}")
        if self._position is None:
            self._position = offset
        self._taken.append(offset)

    def finish(self, offset: int) -> None:
        """Note that the event at `offset`, taken before, is durable."""
        self._finished.add(offset)
        while self._taken and self._taken[0] in self._finished:
            first = self._taken.popleft()
            self._finished.remove(first)
            self._position = first + 1
