"""Which offsets of one partition may be committed: those before the first unfinished one."""

from collections import deque


class Offsets:
    """The offsets of one partition that were taken and not yet committed.

    Events finish in any order, but Kafka remembers one number. So the position stops at the
    first unfinished event: after a crash an event may be sent again, but none is left out.
    Offsets that Kafka skips (compacted, or of a transaction) count as finished.

    Parameters
    ----------
    first
        The first offset that is wanted, if others deliver what lies before it. None: the first one
        that is taken.
    """

    def __init__(self, first: int | None = None) -> None:
        self._taken: deque[int] = deque()  # in order; the first one is not finished
        self._finished: set[int] = set()
        self._first = self._position = first
        self._reached: int | None = None

    @property
    def position(self) -> int | None:
        """The offset to commit: every event below it is finished.

        None before the first `take` and `reach`.
        """
        if self._taken or self._reached is None:
            return self._position
        return max(self._reached, self._position or 0)

    @property
    def unfinished(self) -> int:
        """How many offsets were taken and are not finished."""
        return len(self._taken) - len(self._finished)

    def wants(self, offset: int) -> bool:
        """Whether an offset is not before the first one that is wanted."""
        return self._first is None or offset >= self._first

    def take(self, offset: int) -> None:
        """Note that the event at `offset` is in flight. Offsets must rise."""
        if self._taken and offset <= self._taken[-1]:
            raise ValueError(f"offset {offset} after {self._taken[-1]}")
        if not self._taken:
            known = self.position
            self._position = offset if known is None else known
        self._taken.append(offset)

    def reach(self, offset: int) -> None:
        """Note that every event below `offset` was taken: Kafka has no more for now.

        The last offsets below it may be no events, but a transaction's control records.
        """
        self._reached = offset

    def finish(self, offset: int) -> None:
        """Note that the event at `offset`, taken before, is durable."""
        self._finished.add(offset)
        while self._taken and self._taken[0] in self._finished:
            first = self._taken.popleft()
            self._finished.remove(first)
            self._position = first + 1
