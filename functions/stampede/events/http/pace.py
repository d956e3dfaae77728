"""How fast the bytes of a request come, and how fast those of a response are taken."""


class Pace:
    """How fast bytes move, and for how long none has.

    Parameters
    ----------
    now
        Seconds of the loop's clock.
    slowest
        Bytes a second; fewer are too slow.
    """

    def __init__(self, now: float, slowest: int) -> None:
        self._begin = self._last = now
        self._slowest = slowest
        self.bytes = 0

    def move(self, number: int, now: float) -> None:
        """Note that this many bytes moved."""
        self.bytes += number
        self._last = now

    def hold(self, seconds: float) -> None:
        """Do not count these next seconds: the server does not read."""
        self._begin += seconds
        self._last += seconds

    def excuse(self, now: float) -> None:
        """Do not count the time since the last bytes: the client was not the one to move."""
        self._begin += now - self._last
        self._last = now

    def seconds(self, now: float) -> float:
        """Seconds since the first byte."""
        return now - self._begin

    def is_too_slow(self, now: float, seconds: float) -> bool:
        """Whether no byte moved for `seconds`, or in more than `seconds` too few."""
        passed = self.seconds(now)
        slow = self.bytes < self._slowest * passed
        return now - self._last > seconds or (passed > seconds and slow)


class HeaderPace(Pace):
    """How long a header has been coming: bytes that trickle in do not count.

    Parameters
    ----------
    now
        Seconds of the loop's clock.
    """

    def __init__(self, now: float) -> None:
        super().__init__(now, 0)

    def is_too_slow(self, now: float, seconds: float) -> bool:
        """Whether the header has not ended within `seconds`."""
        return self.seconds(now) > seconds


class ResponsePace:
    """Whether a client takes what was written for it.

    It has to in each period anew: that it was fast before excuses nothing.

    Parameters
    ----------
    now
        Seconds of the loop's clock.
    slowest
        Bytes a second; fewer are too slow.
    """

    def __init__(self, now: float, slowest: int) -> None:
        self._pace = Pace(now, slowest)
        self._slowest = slowest
        self._taken = 0

    def is_too_slow(self, written: int, taken: int, now: float, seconds: float) -> bool:
        """Whether of all bytes written so far too few were taken in the last `seconds`."""
        before, self._taken = self._taken, taken
        if taken == written or self._pace.seconds(now) > 2 * seconds:
            self._pace = Pace(now, self._slowest)
        elif taken > before:
            self._pace.move(taken - before, now)
        return self._pace.is_too_slow(now, seconds)
