"""Cutouts and light curves by id over HTTP, warm, one at a time and several at a time.

A shared host becomes slower for seconds or minutes, and then Python loses more than the rival's
Rust: of 60 turns of 500 cutouts, one at a time, on one quiet machine the median is 1.41 bare GETs,
and one turn has 1.04 to 1.78. So turns of everything are spread over the time of the benchmark.
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from stampede.config.settings import Settings
from stampede.lookup.lookup import Lookup
from stampede_bench.figures import Bound, Context, Figure, Rival, percentile
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.instruments.cpu import Cpu
from stampede_bench.instruments.http_load import Timed, joined, requests, timed

REQUIREMENT_MS = Bound("<=", 50.0)  # p99
# p50 by how many requests are made at a time, in units of a bare ranged GET's.
REQUIREMENT_BARE = {1: Bound("<=", 1.7, ratio=True), 8: Bound("<=", 2.5, ratio=True)}
TARGET_BARE = {1: Bound("<=", 1.3, ratio=True), 8: Bound("<=", 1.6, ratio=True)}
AT_ONCE = (1, 8)
PARTS = 3  # of the turns; between them the benchmark does something else
WARM = 200  # requests before the first turn

Bare = Callable[[int], None]
Path = Callable[[Any], str]


class Requests:
    """One kind of request, so many at a time: what its turns have found so far.

    Parameters
    ----------
    bare
        Gets the cutout of an alert directly from the store; None: nothing is beside the requests.
    """

    def __init__(
        self,
        subject: str,
        url: str,
        path: Path,
        ids: Sequence[Any],
        threads: int,
        bare: Bare | None = None,
    ) -> None:
        self._subject, self._url, self._threads = subject, url, threads
        self._path, self._ids, self._bare = path, ids, bare
        self._alone: list[Timed] = []
        self._found: list[Timed] = []
        self._spent: list[Mapping[str, float]] = []

    def warm(self) -> None:
        """Make some of the requests, not timed."""
        requests(self._url, [self._path(one) for one in self._ids[:WARM]], self._threads)

    def turn(self, number: int, turns: int, pids: Mapping[str, int]) -> None:
        """Make one of `turns` equal parts of the requests, after as many bare GETs."""
        ids = self._ids[number::turns]
        if bare := self._bare:
            self._alone.append(timed(lambda: bare, ids, self._threads))
        cpu = Cpu(pids)
        self._found.append(requests(self._url, [self._path(one) for one in ids], self._threads))
        self._spent.append(cpu.seconds())

    def figures(self) -> Iterator[Figure]:
        """Percentiles, rate and CPU time, of all turns together."""
        found, alone = joined(self._found), joined(self._alone) if self._alone else None
        for share in (50, 99):
            rival = alone and Rival("a bare ranged GET", percentile(alone.milliseconds, share))
            value = percentile(found.milliseconds, share)
            judged = share == 50 and rival
            requirement = (
                REQUIREMENT_MS
                if share == 99
                else REQUIREMENT_BARE[self._threads]
                if judged
                else None
            )
            target = TARGET_BARE[self._threads] if judged else None
            yield Figure(self._subject, f"p{share}", value, "ms", rival, requirement, None, target)
        beside = alone and Rival("bare ranged GETs", len(alone.milliseconds) / alone.seconds)
        count = len(found.milliseconds)
        yield Figure(self._subject, "rate", count / found.seconds, "/s", beside)
        for process in self._spent[0]:
            if process != "ceph-mon":
                whole = sum(each[process] for each in self._spent)
                yield Figure(self._subject, f"CPU of {process}", 1e3 * whole / count, "ms")


class ById:
    """Cutouts beside bare GETs of the same bytes, and light curves as JSON.

    Parameters
    ----------
    ids
        Alert and object of each alert that is stored.
    pids
        Processes whose CPU time is told, by name.
    """

    def __init__(
        self,
        context: Context,
        settings: Settings,
        url: str,
        ids: Sequence[tuple[int, str]],
        pids: Mapping[str, int],
    ) -> None:
        self._context, self._pids = context, pids
        self._turn, self._turns = 0, PARTS * context.scaled(5, 2, least=1)
        alerts = picked([alert_id for alert_id, _ in ids], context.scaled(7500, 1200, least=20))
        objects = picked([object_id for _, object_id in ids], context.scaled(3000, 600, least=20))
        bare = bare_gets(settings, alerts)
        kinds: tuple[tuple[str, Path, Sequence[Any], Bare | None], ...] = (
            ("a cutout", cutout, alerts, bare),
            ("a light curve", curve, objects, None),
        )
        self._all = [
            Requests(f"{what} by id, warm, {n} at a time", url, path, chosen, n, beside)
            for what, path, chosen, beside in kinds
            for n in AT_ONCE
        ]
        for each in self._all:
            each.warm()

    def turns(self) -> None:
        """One of the `PARTS` of the turns of everything."""
        part = self._turns // PARTS
        numbers = range(self._turn, self._turn + part)
        self._context.progress(
            f"cutouts beside bare GETs, and light curves: turns {numbers[0] + 1} to "
            f"{numbers[-1] + 1} of {self._turns}"
        )
        for number in numbers:
            for each in self._all:
                each.turn(number, self._turns, self._pids)
        self._turn += part

    def figures(self) -> Iterator[Figure]:
        """What all turns have found."""
        for each in self._all:
            yield from each.figures()


def bare_gets(settings: Settings, alert_ids: Sequence[int]) -> Bare:
    """A function that gets the cutout of an alert directly from its known location."""
    bucket = open_bucket(settings)
    lookup = Lookup(bucket, settings)
    locations = {
        location.alert_id: location
        for location in lookup.locations(list(set(alert_ids)))
        if location.kind == "science"
    }
    lookup.close()

    def bare(alert_id: int) -> None:
        location = locations[alert_id]
        bucket.get(location.pack or "", *location.page)

    return bare


def cutout(alert_id: int) -> str:
    """Path of a cutout."""
    return f"/v1/alerts/{alert_id}/cutouts/science"


def curve(object_id: str) -> str:
    """Path of a light curve."""
    return f"/v1/objects/{object_id}/lightcurve"


def picked(ids: Sequence[Any], count: int) -> list[Any]:
    """A reproducible random choice of `count` ids, with repeats if there are fewer."""
    chance = random.Random(1)
    return (
        [chance.choice(ids) for _ in range(count)]
        if count > len(ids)
        else chance.sample(ids, count)
    )
