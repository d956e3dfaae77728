"""What each contest sends, and what it does to the pods meanwhile."""

import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from e2e.background import background
from e2e.duel.arena import Arena, Asked, Contestant, Seen
from e2e.duel.contestants import FUNCTIONS, MOST
from e2e.duel.starts import Starts
from e2e.duel.usage import Usage, group_of

SECONDS = 5.0  # of a burst or visit
VISITS, PERIOD = 3, 39.0  # Rubin's, in seconds
HOURS = 8.0  # of a large backlog
ALONE = 3  # single alerts, each when the functions are at rest
STARTS = 2  # of each function
KILL_SECONDS = 6.0  # between two pods that are killed
GROWN_SECONDS = 30.0  # until a function has all its pods


class Result(NamedTuple):
    """One contest of one contestant; `notes` are sentences."""

    seen: Seen
    usage: Usage
    notes: list[str]


class Start(NamedTuple):
    """Seconds from Kafka's timestamp to each stage of a function's pod, and until durable.

    `down` is how long the source called its sink down meanwhile, and paused between attempts.
    """

    function: str
    stages: dict[str, float]
    durable: float
    down: float


class Contest(NamedTuple):
    """A contest under way."""

    arena: Arena
    contestant: Contestant
    notes: list[str]

    def burst(self) -> Asked:
        """A burst to functions that are at rest."""
        return self.arena.send(self.arena.plan.alerts, SECONDS)

    def note(self, text: str) -> None:
        """Note what is worth telling under the table."""
        self.notes.append(f"{self.contestant.title}: {text}")


def fight(arena: Arena, contestant: Contestant, name: str) -> Result:
    """Run a contest, until all of it is durable and read, and the functions are at rest again."""
    contest = Contest(arena, contestant, [])
    with Usage(arena.release.cluster, group_of) as usage:
        seen = RUNS[name](contest)
        contestant.wind_down()
    contestant.rest()
    return Result(Seen.all_of(seen), usage, contest.notes)


def burst(contest: Contest) -> list[Seen]:
    """A burst."""
    return [contest.arena.seen(contest.burst())]


def visits(contest: Contest) -> list[Seen]:
    """Three visits, one every 39 s, whether or not the one before is stored."""
    arena, begin = contest.arena, time.time() + 1
    asked = [
        arena.send(arena.plan.alerts, SECONDS, begin + number * PERIOD) for number in range(VISITS)
    ]
    seen = [arena.seen(each) for each in asked]
    late = ", ".join(f"{each.durable.max():.0f}" for each in seen)
    contest.note(f"the last alert of each visit was durable after {late} s")
    return seen


def scaled_in(contest: Contest) -> list[Seen]:
    """A burst; once a function has all its pods, it may have only one."""
    arena, contestant, asked = contest.arena, contest.contestant, contest.burst()
    sent = asked.sending.result()

    def pods() -> list[int]:
        return [len(contestant.pods(function)) for function in FUNCTIONS]

    deadline = time.monotonic() + GROWN_SECONDS
    while max(before := pods()) < MOST and time.monotonic() < deadline:
        time.sleep(0.5)
    arena.times.look()
    stored = int((arena.times.durable(sent) < time.time()).sum())
    contestant.limit(1)
    try:
        begin, seen = time.monotonic(), [arena.seen(asked)]
        contest.note(
            f"scaled in from {before[0]} and {before[1]} pods to one each when {stored:,} of "
            f"{len(sent.times):,} were durable; all were {time.monotonic() - begin:.0f} s later"
        )
    finally:
        contestant.limit(MOST)
    return seen


def killed(contest: Contest) -> list[Seen]:
    """A burst; one pod after another is killed until all of it is durable."""
    asked, chance = contest.burst(), random.Random(1)
    with repeated(lambda: kill_one(contest, chance), KILL_SECONDS) as deaths:
        seen = contest.arena.seen(asked)
    contest.note(f"{len(deaths)} pods were killed")
    return [seen]


def kill_one(contest: Contest, chance: random.Random) -> str:
    """Kill a pod of a function at once; its name, empty if there is none."""
    names = [pod["metadata"]["name"] for each in FUNCTIONS for pod in contest.contestant.pods(each)]
    if not names:
        return ""
    name = chance.choice(names)
    contest.arena.release.kill(name)
    return name


@contextmanager
def repeated(do: Callable[[], str], seconds: float) -> Iterator[list[str]]:
    """Do something every some seconds while the block runs; what it returned, if anything."""
    done = list[str]()

    def run(stop: threading.Event) -> None:
        while not stop.wait(seconds):
            if name := do():
                done.append(name)

    with background(run):
        yield done


def backlog(contest: Contest) -> list[Seen]:
    """Alerts that wait in Kafka; their times begin when the contestant is started."""
    arena, contestant = contest.arena, contest.contestant
    contestant.stop()
    asked = arena.send(arena.plan.backlog, 0.0)
    asked.sending.result()
    begin = time.time()
    contestant.start()
    seen = arena.seen(asked._replace(begin=begin))
    contest.note(f"caught up {caught_up(len(seen.durable), float(seen.durable.max()))}")
    return [seen]


def caught_up(count: int, seconds: float) -> str:
    """The rate of a backlog, and what it means for eight hours of Rubin: 10,000 every 39 s."""
    rate, arriving = count / seconds, 10_000 / PERIOD
    waiting = HOURS * 3600 * arriving
    alone = waiting / rate / 3600
    text = (
        f"with {rate:.0f} alerts/s, its start included; {HOURS:.0f} hours of Rubin, "
        f"{waiting / 1e6:.1f} M alerts, would take {alone:.1f} h at this rate if no more came"
    )
    if rate <= arriving:
        return f"{text}, and never end while {arriving:.0f}/s go on to arrive"
    more = waiting / (rate - arriving) / 3600
    return f"{text}, {more:.1f} h while {arriving:.0f}/s go on to arrive"


def singles(contest: Contest) -> list[Seen]:
    """Single alerts, each when the functions are at rest."""
    arena, seen = contest.arena, []
    for _ in range(ALONE):
        contest.contestant.rest()
        arena.rest()
        seen.append(arena.seen(arena.send(1, 0.0)))
    return seen


def starts(arena: Arena, contestant: Contestant) -> list[Start]:
    """Single alerts to one function, each from zero; the other one takes none."""
    found = []
    with Starts(arena.release) as watched:
        for function in FUNCTIONS:
            contestant.stop()
            arena.skip(contestant)
            contestant.start([function])
            for _ in range(STARTS):
                contestant.rest()
                arena.rest()
                asked = arena.send(1, 0.0, readable=False)
                durable = arena.stored_by(function, asked)
                time.sleep(3)  # a pod may be ready, for Kubernetes, only later
                begin = float(asked.sending.result().times[0])
                stages = watched.first_after(begin, is_of(function))
                log = logged(arena, contestant.source(function), begin)
                found.append(Start(function, stages, durable, seconds_down(log)))
    return found


def logged(arena: Arena, selector: str, begin: float) -> str:
    """What the pods of a selector have logged since a moment (s, UNIX)."""
    since = f"--since={int(time.time() - begin) + 1}s"
    line = ("logs", "--selector", selector, "--all-containers", "--tail=-1", since)
    return arena.release.kubectl(*line, check=False).output


def seconds_down(log: str) -> float:
    """How long a source called its sink down, by its log."""
    return sum(
        float(found[1])
        for line in log.splitlines()
        if "sink is up again" in line and (found := re.search(r'"?seconds"?[=:] ?([\d.]+)', line))
    )


def is_of(function: str) -> Callable[[str], bool]:
    """Whether a pod of that name runs a function."""
    return lambda pod: f"-{function}-" in pod and group_of("stampede", pod) == "functions"


RUNS: dict[str, Callable[[Contest], list[Seen]]] = {
    "burst": burst,
    "visits": visits,
    "scale-in": scaled_in,
    "killed": killed,
    "backlog": backlog,
    "singles": singles,
}
