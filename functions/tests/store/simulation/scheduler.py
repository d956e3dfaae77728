"""Runs many actors in one thread, one request at a time, in an order that a seed decides.

Each actor is a greenlet. It gives up control before each request that it makes to a store, and
the scheduler decides who continues. So two runs of one seed are the same, request by request.
"""

from __future__ import annotations

import random
import re
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from greenlet import getcurrent, greenlet

START = datetime(2026, 11, 20, tzinfo=UTC)
TRACE = 400  # requests remembered for a report
# Seconds that pass at a step: mostly none, at times more than any grace.
_TICKS = (0, 0, 0, 1, 1, 2, 5)

_DIGEST = re.compile(r"[0-9a-f]{32}.*")


class Killed(BaseException):
    """The process of an actor died. Not an `Exception`, so no code under test handles it."""


class Request(NamedTuple):
    """One entry of the trace: who asked what of which site, and what came of it."""

    step: int
    actor: str
    site: str
    operation: str
    key: str
    outcome: str


class Actor:
    """One process. `behave` is what it does from its start to its death, and may never return."""

    def __init__(
        self, scheduler: Scheduler, name: str, behave: Callable[[Actor], None], skew: timedelta
    ) -> None:
        self._scheduler = scheduler
        self.name = name
        self.skew = skew
        self.frozen_until = 0
        self._behave = behave
        self._start()

    def _start(self) -> None:
        self._greenlet = greenlet(lambda: self._behave(self))

    def resume(self) -> None:
        """Let the actor run to its next request."""
        if self._greenlet.dead:
            self._start()
        self._greenlet.switch()

    def pause(self, operation: str, key: str) -> None:
        """Called in the actor before each request: let others run."""
        self._scheduler.consider_freezing(self, operation, key)
        parent = getcurrent().parent
        assert parent is not None
        parent.switch()

    def sleep(self, steps: int) -> None:
        """Do nothing for some steps, unless nobody else can."""
        self.frozen_until = self._scheduler.step + steps

    def kill(self) -> None:
        """End the process; it starts anew when it is resumed."""
        if self._greenlet:
            with suppress(Killed):
                self._greenlet.throw(Killed)
        self._start()


class Scheduler:
    """Time, chance, and whose turn it is.

    Attributes
    ----------
    chance
        The only source of randomness of a run.
    now
        The store's clock.
    step
        Number of requests so far.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.now = START
        self.step = 0
        self.trace: deque[Request] = deque(maxlen=TRACE)
        self.actors: list[Actor] = []
        # How likely the same actor continues, how likely one is stopped for long, how likely one
        # dies: another mixture in each run finds other faults.
        self._stay = self.chance.choice((0.0, 0.5, 0.95))
        self._freeze = self.chance.choice((0.0, 1.0, 3.0, 8.0))
        self._kill = self.chance.choice((0.0, 0.0, 0.001, 0.004))
        self._jump = self.chance.choice((0.0, 0.002, 0.02))
        self._kinds: Counter[tuple[str, str]] = Counter()
        self._in_flight: list[tuple[int, int, Callable[[], None]]] = []
        self._sent = 0

    def land_later(self, effect: Callable[[], None]) -> None:
        """Let a request take effect some steps from now, whoever sent it."""
        self._sent += 1
        due = self.step + self.chance.choice((1, 5, 20, 100, 300))
        self._in_flight.append((due, self._sent, effect))

    def consider_freezing(self, actor: Actor, operation: str, key: str) -> None:
        """Stop the process of `actor` for long, at times: others go on meanwhile.

        More likely before a kind of request that was rare so far, such as a question before a
        deletion: it is there that a protocol can go wrong, and most requests are of other kinds.
        """
        kind = operation, _DIGEST.sub("#", key)
        self._kinds[kind] += 1
        if self.chance.random() < min(0.3, self._freeze / self._kinds[kind]):
            actor.sleep(self.chance.choice((20, 60, 150)))

    def run(self, steps: int) -> None:
        """Make `steps` requests."""
        actor = self.actors[0]
        while self.step < steps:
            self._pass_time()
            if actor.frozen_until > self.step or self.chance.random() >= self._stay:
                actor = self._next()
            if self.chance.random() < self._kill:
                actor.kill()
                continue
            self.step += 1
            actor.resume()
        self.stop()

    def stop(self) -> None:
        """End all actors; requests that are under way take effect."""
        for actor in self.actors:
            actor.kill()
        while self._in_flight:
            self._in_flight.pop(0)[2]()

    def _next(self) -> Actor:
        awake = [actor for actor in self.actors if actor.frozen_until <= self.step]
        return self.chance.choice(awake or self.actors)

    def _pass_time(self) -> None:
        seconds = 600 if self.chance.random() < self._jump else self.chance.choice(_TICKS)
        self.now += timedelta(seconds=seconds)
        for due in sorted(entry for entry in self._in_flight if entry[0] <= self.step):
            self._in_flight.remove(due)
            due[2]()
