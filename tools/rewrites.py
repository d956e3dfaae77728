"""How often compaction writes a long history again, and what a lookup asks for, by plan.

`python tools/rewrites.py` plays merges of `detections` on made-up runs of 64 nights. A night has
10^7 alerts in batches of 300, each alert brings 250 rows of its object's history of which two are
new, and an object has 13 alerts in 30 nights, one in a night at most. `compact` runs once a minute.
A plan is how many runs a level merges at once, from level 0 on; the last number is for all others.

`python tools/rewrites.py real` does so with real runs in memory, of eight nights of 2,000 alerts in
batches of ten, and prints what the model says of these.

The results are in docs/measurements/0080-rewritten-histories.md.
"""

import sys
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import numpy as np

from stampede.store.compaction import compact
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import ObjectInfo
from stampede.store.offsets.coverage import Coverage
from stampede.store.runs.run import RunInfo
from stampede.store.runs.run_name import RunName
from stampede.store.runs.schema import DETECTIONS
from stampede.store.tables.table import Table
from stampede_bench.instruments.counting_store import CountingStore
from stampede_bench.instruments.synthetic import FIRST_OBJECT, detection_rows

NIGHT, BATCH = 10_000_000, 300  # alerts
HISTORY, NEW = 250, 2  # rows of an alert
CHANCE = 13 / 30  # of an alert of an object in a night
OBJECTS = NIGHT / CHANCE
MINUTE = 56  # batches: ten hours have 600 minutes
NIGHTS = 64
FALSE = 0.005  # of keys that are not there pass a filter
SECTION_ROWS = 64 * 2000
SMALL_ROWS, SMALL_KEYS = 16 * 2000, 5461  # no sections; filter in the footer
PART_ROWS = 4_000_000
SMALL_PART = SMALL_KEYS * HISTORY  # rows: the filter is in the footer
SECTION = 16_000  # bytes, index and filter, in memory about as many
CACHE = 38e6  # bytes of sections that `read` keeps of the table
LOOKUPS, LOOKS = 150, 16
VISITS, APART = 120, 28  # of a deep field in an hour: batches between two alerts of an object
PLANS = {  # numbers of runs merged at once, from level 0 on; whether parts of level 1 are small
    "8 at all levels: today": ((8,), False),
    "64, then 8": ((64, 8), False),
    "64, 64, then 8": ((64, 64, 8), False),
    "64, 64, then 8; small parts": ((64, 64, 8), True),
    "64, 64, 16, then 8; small parts": ((64, 64, 16, 8), True),
    "64, 64, 32, then 8; small parts": ((64, 64, 32, 8), True),
    "64, 521 at dawn, then 8; small parts": ((64, 521, 8), True),
    "8 five times, then 64": ((8, 8, 8, 8, 8, 64), False),
    "16": ((16,), False),
}


@dataclass
class Run:
    """Consecutive alerts, numbered from the first night on."""

    level: int
    first: int
    end: int
    number: int

    @property
    def objects(self) -> float:
        """How many objects have an alert in it."""
        nights = range(self.first // NIGHT, -(-self.end // NIGHT))
        parts = [
            min(self.end, (night + 1) * NIGHT) - max(self.first, night * NIGHT) for night in nights
        ]
        none = float(np.prod([1 - CHANCE * part / NIGHT for part in parts]))
        return OBJECTS * (1 - none)

    @property
    def rows(self) -> float:
        """Its rows: the history of each object once, and the new ones of its further alerts."""
        alerts, objects = self.end - self.first, self.objects
        return objects * HISTORY + (alerts - objects) * NEW


class Played:
    """Live runs by level, and the rows that merges wrote."""

    def __init__(self, plan: Sequence[int]) -> None:
        self.plan = plan
        self.live: list[list[Run]] = [[]]
        self.written: dict[int, float] = {}
        self.alerts = self.made = 0

    def append(self) -> None:
        """Store a batch."""
        self.live[0].append(Run(0, self.alerts, self.alerts + BATCH, self.made))
        self.alerts += BATCH
        self.made += 1

    def compact(self) -> None:
        """Merge until no level is full, the lowest first."""
        level = 0
        while level < len(self.live):
            width = self.plan[min(level, len(self.plan) - 1)]
            while len(self.live[level]) >= width:
                group, self.live[level] = self.live[level][:width], self.live[level][width:]
                self._merge(group, level + 1)
            level += 1

    def _merge(self, group: list[Run], level: int) -> None:
        merged = Run(level, group[0].first, group[-1].end, self.made)
        self.made += 1
        if level == len(self.live):
            self.live.append([])
        self.live[level].append(merged)
        self.written[level] = self.written.get(level, 0.0) + merged.rows

    def runs(self) -> list[Run]:
        """All live runs."""
        return [run for of_level in self.live for run in of_level]


@dataclass
class Asked:
    """GETs of a lookup of a random object: of the first after a start, and with a warm cache."""

    runs: float
    rows: float
    first: float
    usual: float


def asked(shapes: Sequence[Sequence[Run]], small: bool) -> Asked:
    """The mean over the states in `shapes`. Rows are never in memory, sections if the cache can."""
    chance = np.random.default_rng(1)
    found = []
    for runs in shapes:
        has = np.array([run.objects / OBJECTS for run in runs])
        rows = np.array([run.rows for run in runs])
        few = np.array([small and run.level == 1 for run in runs])
        parts = np.ceil(rows / np.where(few, SMALL_PART, PART_ROWS))
        keys = np.array([run.objects for run in runs]) / parts  # of a part
        passing = has + (1 - has) * FALSE
        # How likely a lookup needs a section of the run: its filter is there, or in the footer.
        needs = np.where(keys > SMALL_KEYS, 1.0, passing) * (rows > SMALL_ROWS)
        counts = np.maximum(1, rows // SECTION_ROWS).astype(int)
        cache: OrderedDict[tuple[int, int], None] = OrderedDict()
        missed = 0
        for turn in range(2 * LOOKUPS):
            missed *= turn != LOOKUPS
            for number in np.flatnonzero(chance.random(len(runs)) < needs).tolist():
                key = number, int(chance.integers(counts[number]))
                missed += key not in cache
                cache[key] = None
                cache.move_to_end(key)
                if len(cache) * SECTION > CACHE:
                    cache.popitem(last=False)
        of_rows = passing.sum()
        found.append((len(runs), of_rows, of_rows + needs.sum(), of_rows + missed / LOOKUPS))
    return Asked(*np.mean(found, axis=0))


def play(plan: Sequence[int], small: bool) -> tuple[Played, Asked]:
    """All nights, and lookups at random minutes of the second half of them."""
    played, shapes = Played(plan), []
    passes = NIGHTS * NIGHT // BATCH // MINUTE
    looks = {*np.random.default_rng(2).integers(passes // 2, passes, LOOKS).tolist()}
    for number in range(passes):
        for _ in range(MINUTE):
            played.append()
        if number in looks:
            shapes.append(played.runs())  # just before a pass
        played.compact()
    return played, asked(shapes, small)


def deep(plan: Sequence[int]) -> float:
    """Live runs with a deep field's object, the mean over the hour in which it is observed."""
    played, found = Played(plan), []
    first = NIGHT // BATCH // 3
    its = first + APART * np.arange(VISITS)
    while played.alerts // BATCH < its[-1]:
        for _ in range(MINUTE):
            played.append()
        if played.alerts // BATCH > first:
            ends = [(run.first // BATCH, run.end // BATCH) for run in played.runs()]
            first_of, end_of = np.searchsorted(its, np.array(ends)).T
            found.append(int(np.count_nonzero(end_of > first_of)))
        played.compact()
    return float(np.mean(found))


def in_small_store(plan: Sequence[int], batches: int = 300) -> float:
    """Live runs of a small store, the mean until it has so many batches."""
    played, found = Played(plan), []
    for _ in range(batches):
        played.append()
        played.compact()
        found.append(len(played.runs()))
    return float(np.mean(found))


def check(minutes: int) -> None:
    """Hold `Played` to the plan that `compact` goes by, for so many minutes."""
    played, policy = Played((8,)), compact.Policy()
    live: list[tuple[RunInfo, ...]] = []
    begin, number = datetime.fromtimestamp(0, UTC), 0

    def made(level: int, rows: int) -> tuple[RunInfo, ...]:
        nonlocal number
        number += 1
        info = ObjectInfo(f"{number}", 1, "", begin + timedelta(seconds=number))
        return (RunInfo(RunName(level, f"{number:032}"), info, (), Coverage(), rows, None, None),)

    for _ in range(minutes):
        for _ in range(MINUTE):
            played.append()
            live.append(made(0, BATCH * HISTORY))
        played.compact()
        while picked := compact._pick(live, policy):
            runs, level = picked
            live = [run for run in live if run not in runs]
            live.append(made(level, sum(run[0].rows for run in runs)))
        levels = sorted(run[0].name.level for run in live)
        if levels != sorted(run.level for run in played.runs()):
            sys.exit(f"the real plan leaves runs of levels {levels}")


class Real:
    """A table in memory, compacted by a plan, beside the model of it."""

    def __init__(self, plan: Sequence[int]) -> None:
        self.plan, self.played = plan, Played(plan)
        self.now = datetime.fromtimestamp(0, UTC)
        self.memory = MemoryObjects(lambda: self.now)
        self.store = CountingStore(self.memory)
        self.table = Table(self.store, DETECTIONS)
        self.seen = np.zeros(int(OBJECTS), int)  # alerts of each object
        self.appended = self.written = self.appended_bytes = self.written_bytes = self.gets = 0
        self.looks: list[int] = []

    def append(self, objects: np.ndarray) -> None:
        """Store a batch with an alert of each of these objects, ascending."""
        rows = (NEW * self.seen[objects][:, None] + np.arange(HISTORY)).ravel()
        self.seen[objects] += 1
        first = self.played.alerts
        offsets = Coverage({("made-up", 0): np.array([[first, first + BATCH]])})
        self.store.clear()
        self.table.append(detection_rows(np.repeat(objects, HISTORY), rows), offsets)
        self.appended_bytes += self.store.bytes["put"]
        self.appended += len(rows)
        self.played.append()
        self.now += timedelta(seconds=1)

    def merge(self) -> None:
        """Make a pass by the plan."""
        self.store.clear()
        with patch.object(compact, "_pick", self._pick):
            report = compact.compact(self.table, self.now, compact.Policy(grace=timedelta(0)))
        self.written += report.rows_written
        self.written_bytes += report.bytes_written
        self.gets += self.store.requests["get"]
        self.played.compact()

    def look_up(self, objects: np.ndarray) -> None:
        """Look up each once, in a process that has just started."""
        table = Table(self.store, DETECTIONS)
        table.refresh()
        for number in objects.tolist():
            self.store.clear()
            table.lookup([str(FIRST_OBJECT + number)])
            self.looks.append(self.store.requests["get"])
        table.close()

    def _pick(
        self, runs: list[tuple[RunInfo, ...]], policy: compact.Policy
    ) -> tuple[list[tuple[RunInfo, ...]], int] | None:
        levels: dict[int, list[tuple[RunInfo, ...]]] = {}
        for run in sorted(runs, key=compact._order):
            levels.setdefault(run[0].name.level, []).append(run)
        for level, of_level in sorted(levels.items()):
            width = self.plan[min(level, len(self.plan) - 1)]
            if group := compact._group(of_level, width, 0):
                return group, level + 1
        return None


def real(plan: Sequence[int], nights: int) -> Real:
    """Play so many nights."""
    found, chance = Real(plan), np.random.default_rng(1)
    for number in range(nights * NIGHT // BATCH):
        at = number % (NIGHT // BATCH) * BATCH
        if not at:
            order = chance.permutation(int(OBJECTS))
        found.append(np.sort(order[at : at + BATCH]))
        if number % MINUTE == MINUTE - 1:
            if number >= nights * NIGHT // BATCH // 2:
                found.look_up(chance.permutation(np.flatnonzero(found.seen))[:60])
            found.merge()
    return found


def print_real() -> None:
    """Print what real runs and the model take, for two plans."""
    globals().update(NIGHT=2000, BATCH=10, OBJECTS=2000 / CHANCE)
    print("| plan | rows rewritten, of appended | by the model | bytes | GETs of merges | lookup |")
    for plan in (8,), (64, 8):
        found = real(plan, 8)
        batches = found.played.alerts // BATCH
        print(
            f"| {plan} | {found.written / found.appended:.3f}"
            f" | {sum(found.played.written.values()) / found.appended:.3f}"
            f" | {found.written_bytes / found.appended_bytes:.2f}"
            f" | {found.gets / batches:.1f} a batch | {np.mean(found.looks):.2f} |",
            flush=True,
        )


def main() -> None:
    """Print a line for each plan."""
    if sys.argv[1:] == ["real"]:
        print_real()
        return
    check(200)
    appended = NIGHTS * NIGHT // BATCH // MINUTE * MINUTE * BATCH * HISTORY
    today = None
    print("| plan | rewritten | by level | runs | GETs for rows | first | usual | deep | small |")
    for name, (plan, small) in PLANS.items():
        played, of = play(plan, small)
        times = {level: rows / appended for level, rows in sorted(played.written.items())}
        whole = sum(times.values())
        today = today or (whole, of)
        levels = " ".join(f"{value:.2f}" for value in times.values())
        print(
            f"| {name} | {whole:.2f} ({whole / today[0]:.2f}) | {levels} | {of.runs:.0f}"
            f" | {of.rows:.2f} ({of.rows / today[1].rows:.3f})"
            f" | {of.first:.1f} ({of.first / today[1].first:.2f})"
            f" | {of.usual:.1f} ({of.usual / today[1].usual:.2f})"
            f" | {deep(plan):.1f} | {in_small_store(plan):.1f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
