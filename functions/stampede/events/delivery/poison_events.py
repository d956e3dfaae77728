"""Which events fail alone: others are accepted while the same one fails again and again.

A sink that is down, or fails half of the time, is not an event's fault, however often the event
fails. What tells the two apart are the failures of events that the sink accepted in the end: those
were the sink's. If it has few of them, an event that fails time after time fails by itself.
"""

from collections import OrderedDict
from collections.abc import Hashable

# Failures with another event's acceptance between each two of them, before an event is given up.
LEAST = 5
# Failures of accepted events, for each event accepted, up to which a sink counts as working.
WORKING = 0.1
MOST_EVENTS = 10_000  # that are remembered; with more, the sink is what fails


class PoisonEvents:
    """Counts what one sink accepts and what fails, and says which events to give up.

    Parameters
    ----------
    seconds
        How long an event must have failed alone before it is given up.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._accepted = 0
        self._failed = 0  # attempts of events that were accepted later
        self._failing: OrderedDict[Hashable, _Failing] = OrderedDict()

    def accept(self, event: Hashable) -> None:
        """Note that the sink accepted an event."""
        self._accepted += 1
        if failing := self._failing.pop(event, None):
            self._failed += failing.times

    def forget(self, event: Hashable) -> None:
        """Note that an event is not sent any more."""
        self._failing.pop(event, None)

    def is_suspected(self, event: Hashable) -> bool:
        """Whether an event has failed more than once while others were accepted."""
        failing = self._failing.get(event)
        return failing is not None and failing.alone > 1

    def fail(self, event: Hashable, now: float) -> bool:
        """Note that an event failed; whether to give it up.

        Parameters
        ----------
        now
            Seconds of a steady clock.
        """
        failing = self._failing.get(event)
        if failing is None:
            failing = self._failing[event] = _Failing(now, self._accepted, self._failed)
            if len(self._failing) > MOST_EVENTS:
                self._failing.popitem(last=False)
        failing.times += 1
        failing.alone += self._accepted > failing.seen
        failing.seen = self._accepted
        if failing.alone < LEAST or now - failing.begin < self._seconds:
            return False
        if self._failed - failing.failed > WORKING * (self._accepted - failing.accepted):
            failing.restart(now, self._accepted, self._failed)
            return False
        self.forget(event)
        return True


class _Failing:
    """An event that fails, and what the sink did since `begin`."""

    def __init__(self, now: float, accepted: int, failed: int) -> None:
        self.times = 0
        self.restart(now, accepted, failed)

    def restart(self, now: float, accepted: int, failed: int) -> None:
        """Begin to count anew."""
        self.begin = now
        self.accepted = self.seen = accepted
        self.failed = failed
        self.alone = 0
