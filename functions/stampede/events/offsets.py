"""Which offsets of one partition may be committed: those before the first unfinished one."""

from collections import deque


class Offsets:
    """The offsets of one partition that were taken and not yet committed.

    Events finish in any order; Kafka remembers one number. So the position moves only over
    what is finished without a gap: after a crash an event may come again, never be left out.
    Offsets that Kafka skips (compacted, or of a transaction) count as finished.
    """

    def __init__(self) -> None:
        self._taken: deque[int] = deque()  # in order; its first is not finished
        self._finished: set[int] = set()
        self._position: int | None = None

    @property
    def position(self) -> int | None:
        """What to commit: every taken offset below it is finished. None before the first take."""
        return self._position

    @property
    def unfinished(self) -> int:
        """How many offsets were taken and are not finished."""
        return len(self._taken) - len(self._finished)

    def take(self, offset: int) -> None:
        """Note that the event at `offset` is on its way; offsets are taken in rising order."""
        if self._taken and offset <= self._taken[-1]:
            raise ValueError(f"offset {offset} after {self._taken[-1]}")
        if self._position is None:
            self._position = offset
        self._taken.append(offset)

    def finish(self, offset: int) -> None:
        """Note that the event at `offset`, taken before, is somewhere durable."""
        self._finished.add(offset)
        while self._taken and self._taken[0] in self._finished:
            first = self._taken.popleft()
            self._finished.remove(first)
            self._position = first + 1
