"""Rubin's visits: from an alert's Kafka timestamp until it is durable, and until `read` gives it.

Rubin sends 10,000 alerts within 5 s, every 39 s. Here the whole system of `stampede up` runs on
this machine, with Ceph, Kafka and the client. The times until alerts are durable come from the runs
that hold them, so they are those of all alerts; a sample is asked for over HTTP.
"""

import random
import time
from collections.abc import Iterator, Sequence
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from stampede.runtime.progress import silent
from stampede_bench.figures import Bound, Context, Figure, Rival, percentile
from stampede_bench.ingestion.ingest import costs, look, wait_until_stored, walls
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.instruments.cpu import Cpu
from stampede_bench.instruments.load import LSST_HISTORY
from stampede_bench.instruments.servers import pids, reporter
from stampede_bench.machine import disk_wait
from stampede_bench.visits.alerts import VisitAlerts, simulate
from stampede_bench.visits.reader import Readable, read
from stampede_bench.visits.sender import PARTITIONS, Sender, Sent, Visit, forget, sender
from stampede_bench.visits.times import DurableTimes
from stampede_local import installer
from stampede_local.kafka import LocalKafka, make_topics
from stampede_local.plan import SystemPlan
from stampede_local.ports import free_port
from stampede_local.system import System
from stampede_local.up import timer

TOPIC = "visits"
SHARE = 98  # percent, as in Rubin's requirement
REQUIREMENT, TARGET = Bound("<=", 60.0), Bound("<=", 25.0)  # seconds until readable
REQUIREMENT_ALONE = Bound("<=", 0.5)  # seconds, of one alert while nothing else happens
ALL = Bound(">=", 1.0, ratio=True)
SAMPLE = 100  # alerts of each visit that are asked for
PAUSE, SHORT_PAUSE = 0.5, 0.01  # seconds between two requests for an alert that is not there yet
ALONE_SECONDS = 0.6, 1.6  # pause before each single alert: at any moment of `read`'s listing
LEAD_SECONDS = 2.0
LOOK_SECONDS = 30.0
FEW = ("deadletters", "reconcile", "broker", "notifications", "ceph-mon")  # little CPU


class Seen(NamedTuple):
    """Seconds from Kafka's timestamp, sorted by number of the alert.

    `durable` of all alerts; `sampled` until durable, and `readable`, of those that were asked for.
    """

    durable: np.ndarray
    sampled: np.ndarray
    readable: np.ndarray


class Bench(NamedTuple):
    """A running system, and what sends to it and looks at it."""

    context: Context
    live: System
    alerts: VisitAlerts
    sender: Sender
    times: DurableTimes
    pids: dict[str, int]


def measure(context: Context) -> Iterator[Figure]:
    """Single alerts, then visits, then a visit four times as large."""
    singles = context.scaled(20, 6, least=2)
    count, visits = context.scaled(10_000, 1000, least=40), 2 if context.quick else 10
    seconds, period = (0.5, 8.0) if context.quick else (5.0, 39.0)
    context.progress("simulating a visit's alerts")
    alerts = VisitAlerts([*simulate(context.scaled(16, 4), LSST_HISTORY)])
    with running(context, alerts, 1 + singles + (visits + 4) * count) as bench:
        yield from alone(bench, singles)
        begin = time.time() + LEAD_SECONDS
        regular = [
            Visit(1 + singles + number * count, count, begin + number * period, seconds)
            for number in range(visits)
        ]
        title = f"LSST alerts of {alerts.mean_bytes / 1e3:.0f} KB"
        subject = f"{visits} visits of {count:,} {title}, one every {period:.0f} s"
        yield from visited(bench, subject, regular, (REQUIREMENT, TARGET))
        large = Visit(regular[-1].numbers.stop, 4 * count, time.time() + LEAD_SECONDS, seconds)
        yield from visited(bench, f"one visit of {4 * count:,} {title}", [large], (None, None))
        stored = bench.times.stored()
        letters = sum(1 for _ in open_bucket(bench.live.settings).list("deadletters/"))
    rival = Rival("sent", float(large.numbers.stop))
    yield Figure("all alerts", "in the ledger of every table", float(stored), "alerts", rival, ALL)
    yield Figure("all alerts", "dead letters", float(letters), "objects", None, Bound("<=", 0.0))


@contextmanager
def running(context: Context, alerts: VisitAlerts, most: int) -> Iterator[Bench]:
    """Everything that `stampede up` starts, and the process that sends."""
    installer.ensure(installer.KAFKA, context.install, context.progress)
    with LocalKafka(context.scratch / "kafka", free_port(2), progress=context.progress) as kafka:
        make_topics(kafka.bootstrap, [TOPIC], PARTITIONS)
        plan = SystemPlan(
            context.scratch / "up", None, kafka.bootstrap, (TOPIC,), free_port(), context.install
        )
        context.progress("starting what `stampede up` starts")
        with (
            System(plan, silent, reporter(context)) as live,
            timer(live),
            sender(kafka.bootstrap, TOPIC, alerts) as process,
        ):
            times = DurableTimes(open_bucket(live.settings), TOPIC, most)
            try:
                found = pids([*kafka.processes, *live.processes.values()])
                found["the sender"] = process.pid
                yield Bench(context, live, alerts, process, times, found)
            finally:
                times.close()


def alone(bench: Bench, count: int) -> Iterator[Figure]:
    """Alerts one by one, each once the one before is read. The first one is not counted."""
    chance = random.Random(1)
    seen = []
    for number in range(1 + count):
        time.sleep(chance.uniform(*ALONE_SECONDS))
        visit, waited = Visit(number, 1, 0.0, 0.0), disk_wait()
        begun = bench.sender.send(visit)
        found = read(bench.live.urls["read"], bench.alerts, [number], SHORT_PAUSE)
        one = begun.result()
        seen.append((visit, one, found))
        late = max(found[number]) - one.times[0]
        if number and late > REQUIREMENT_ALONE.value:
            bench.context.progress(
                f"alert {number} is readable after {late:.2f} s{of_disk(waited)}"
            )
    sent = [one for _, one, _ in seen[1:]]
    parts = [seen_of(bench, *one) for one in seen[1:]]
    durable = [float(part.durable[0]) for part in parts]
    readable = [float(part.readable[0]) for part in parts]
    subject = "a single alert while nothing else happens"
    for name, values in (("durable", durable), ("readable", readable)):
        yield Figure(subject, f"{name}, p50", percentile(values, 50), "s")
        requirement = REQUIREMENT_ALONE if name == "readable" else None
        yield Figure(subject, f"{name}, max", max(values), "s", None, requirement)
    found_at = [found[visit.first] for visit, _, found in seen[1:]]
    yield from stages(bench, subject, sent, found_at)


def of_disk(before: float | None) -> str:
    """What all processes waited for a disk since `disk_wait` was `before`."""
    now = disk_wait()
    if before is None or now is None:
        return ""
    return f"; for {now - before:.2f} s of them everything waited for a disk (/proc/pressure/io)"


def stages(
    bench: Bench, subject: str, sent: Sequence[Sent], found: Sequence[Readable]
) -> Iterator[Figure]:
    """What of a single alert is there when: its rows in each table, and responses of `read`."""
    begun = [one.times[0] for one in sent]
    rows = {
        f"stored in {table}": [float(bench.times.of(table, one)[0]) for one in sent]
        for table in bench.times.tables
    }
    responses = {f"{name} read": [getattr(one, name) for one in found] for name in Readable._fields}
    for name, values in (rows | responses).items():
        after = [value - begin for value, begin in zip(values, begun, strict=True)]
        spread = (min(after), max(after))
        yield Figure(subject, f"{name}, p50", percentile(after, 50), "s", None, None, spread)


def visited(
    bench: Bench, subject: str, visits: Sequence[Visit], bounds: tuple[Bound | None, Bound | None]
) -> Iterator[Figure]:
    """Send visits when they are due, and judge the times until their alerts are readable."""
    cpu, own, before = Cpu(bench.pids), time.process_time(), look(bench.live)
    sent: list[Sent] = []
    seen: list[Seen] = []
    with ThreadPoolExecutor(len(visits)) as pool:
        due = [(visit, bench.sender.send(visit), asked(bench, pool, visit)) for visit in visits]
        for number, (visit, sending, reading) in enumerate(due, 1):
            sent.append(sending.result())
            while not reading.done():
                bench.times.look()  # before compaction deletes a run
                futures.wait([reading], LOOK_SECONDS)
            seen.append(seen_of(bench, visit, sent[-1], reading.result()))
            forget(bench.live.settings.kafka, TOPIC, [sent[-1]])  # ten do not fit on the disk
            slowest = percentile(seen[-1].readable.tolist(), SHARE)
            bench.context.progress(
                f"visit {number}: sent within {took(sent[-1]):.1f} s, "
                f"{SHARE} % readable after {slowest:.1f} s"
            )
    # All other processes are children of this one, so `Cpu` would count them as part of it.
    spent, wall = cpu.seconds() | {"the client": time.process_time() - own}, cpu.wall
    used, others = sum(spent.values()) / wall, cpu.others(sum(spent.values()))
    wait_until_stored(bench.live, visits[-1].numbers.stop, ("thumbnails",))
    spent |= cpu.seconds()  # thumbnails are drawn later, and their CPU time counts too
    yield from times_of(subject, seen, bounds)
    slowest = max(map(took, sent))
    yield Figure(subject, "sent within, at most", slowest, "s", Rival("asked", visits[0].seconds))
    total = sum(visit.size for visit in visits)
    taken = Rival("taken by others meanwhile", others)
    yield Figure(subject, "cores used", used, "cores", taken)
    each = {name: seconds / total for name, seconds in spent.items()}
    yield from costs(subject, total / wall, each, FEW)
    yield from walls(subject, before, look(bench.live), total)


def asked(bench: Bench, pool: ThreadPoolExecutor, visit: Visit) -> "Future[dict[int, Readable]]":
    """Begin to ask for a sample of a visit's alerts."""
    numbers = random.Random(visit.first).sample(visit.numbers, min(SAMPLE, visit.size))
    return pool.submit(read, bench.live.urls["read"], bench.alerts, numbers, PAUSE, visit.begin)


def seen_of(bench: Bench, visit: Visit, sent: Sent, found: dict[int, Readable]) -> Seen:
    """The times of a visit, once all of it is durable."""
    durable = bench.times.wait(sent) - sent.times
    at = np.array([number - visit.first for number in sorted(found)])
    read_at = np.array([max(found[number]) for number in sorted(found)])
    return Seen(durable, durable[at], read_at - sent.times[at])


def times_of(
    subject: str, seen: Sequence[Seen], bounds: tuple[Bound | None, Bound | None]
) -> Iterator[Figure]:
    """p50, p98 and the maximum over all visits, with the least and the greatest of one visit."""
    requirement, target = bounds
    every = Seen(*map(np.concatenate, zip(*seen, strict=True)))
    for name in ("durable", "readable"):
        for share in (50, SHARE, 100):
            value = percentile(getattr(every, name).tolist(), share)
            each = [percentile(getattr(one, name).tolist(), share) for one in seen]
            spread = (min(each), max(each)) if len(each) > 1 else None
            judged = name == "readable" and share == SHARE
            label = f"{name}, {'max' if share == 100 else f'p{share}'}"
            yield Figure(
                subject,
                label,
                value,
                "s",
                None,
                requirement if judged else None,
                spread,
                target if judged else None,
            )
    all_of_them = Rival("of all alerts", percentile(every.durable.tolist(), SHARE))
    sampled = percentile(every.sampled.tolist(), SHARE)
    yield Figure(subject, f"durable, p{SHARE}, of the sample", sampled, "s", all_of_them)


def took(sent: Sent) -> float:
    """Seconds from the first Kafka timestamp of a visit to the last."""
    return float(np.ptp(sent.times))
