"""End to end: from alerts that wait in Kafka until the ledger proves them durable in both tables.

The processes are those of `stampede up`, on this machine, which also runs Kafka and Ceph. Starting
them is not measured: some alerts are stored first, then the functions are paused while Kafka is
filled, and the clock starts when they continue.
"""

import os
import signal
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from stampede.alerts.columns import KINDS
from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.errors import StampedeError
from stampede.events import functions_of
from stampede.handlers.audit.audit import audit
from stampede.store.s3.bucket import S3Objects
from stampede_bench.figures import Bound, Context, Figure, Rival
from stampede_bench.ingestion.ingest_rivals import kafka_rate, per_object_rate, put_rate
from stampede_bench.instruments import load
from stampede_bench.instruments.bucket import clear, open_bucket
from stampede_bench.instruments.cpu import Cpu
from stampede_bench.instruments.load import Load
from stampede_bench.instruments.servers import Servers, pids, servers, system
from stampede_local.kafka import producer
from stampede_local.process import Process
from stampede_local.system import System

# Alerts a second on 2 cores: the requirement and the target.
REQUIREMENT = {"lsst": Bound(">=", 500.0), "ztf": Bound(">=", 1200.0)}
TARGET = {"lsst": Bound(">=", 800.0), "ztf": Bound(">=", 2200.0)}
HISTORY = {"lsst": load.LSST_HISTORY, "ztf": load.ZTF_HISTORY}  # rows
PARTS = 3  # of a round, to see whether the rate lasts
WARM = 300  # alerts that are stored first
IDLE = ("deadletters", "compact", "read", "ceph-mon")  # these have nothing to do here
LOOK_SECONDS = 0.25  # each look takes CPU time of a function
STALLED_SECONDS = 120.0


class Moment(NamedTuple):
    """What the functions have done so far: alerts stored, seconds by stage of a flush."""

    stored: dict[str, int]
    stages: dict[tuple[str, str], float]


class Round(NamedTuple):
    """One round: `parts` are the rates of its parts, `cpu` seconds an alert by process."""

    bucket: S3Objects
    settings: Settings
    warm: int
    total: int
    wall: float
    parts: Sequence[float]
    cpu: dict[str, float]
    others: float
    before: Moment
    end: Moment

    @property
    def rate(self) -> float:
        """Alerts stored in a second."""
        return self.total / self.wall

    @property
    def cores(self) -> float:
        """Cores that all processes used."""
        return sum(self.cpu.values()) * self.rate


def measure(context: Context) -> Iterator[Figure]:
    """Each survey alone: a round takes minutes, in a quick run seconds."""
    with servers(context, kafka=True) as running:
        for survey in ("lsst", "ztf"):
            count = context.scaled(1500, 1400, least=40)
            context.progress(f"simulating {count:,} {survey.upper()} alerts")
            alerts = load.simulated(survey, count, HISTORY[survey], objects=max(20, count // 5))
            yield from one_survey(context, running, survey, alerts, context.scaled(20, 1))


def one_survey(
    context: Context, running: Servers, survey: str, alerts: Load, times: int
) -> Iterator[Figure]:
    """Store all alerts this many times, and compare."""
    found = one_round(context, running, survey, alerts, times)
    yield from rates(alerts, found)
    taken = Rival("taken by others meanwhile, the measuring itself included", found.others)
    yield Figure(alerts.title, "cores used", found.cores, "cores", taken)
    yield from sizes(alerts.title, found.bucket, found.total + found.warm)
    yield from costs(alerts.title, found.rate, dict(found.cpu))
    yield from walls(alerts.title, found.before, found.end, found.total)
    clear(found.bucket)


def one_round(context: Context, running: Servers, name: str, alerts: Load, times: int) -> Round:
    """Store all alerts this many times, from a topic of its own into a bucket of its own."""
    total, topic = times * len(alerts.messages), f"bench-{name}"
    settings = running.settings(topic).model_copy(
        update={"group": topic, "kafka_options": {"session.timeout.ms": "300000"}}  # see `paused`
    )
    bucket = open_bucket(settings)
    with system(context, name, settings, (topic,)) as live:
        warm = alerts.messages[: max(1, min(WARM, total // 4))]
        fill(settings, topic, warm)
        before = wait_until_stored(live, len(warm))
        with paused([live.processes[each] for each in functions_of(live.urls)]):
            for _ in range(times):
                fill(settings, topic, alerts.messages)
            cpu = Cpu(running.pids | pids(list(live.processes.values())))
        moments = [0.0]
        for part in range(1, PARTS + 1):
            wait_until_stored(live, len(warm) + total * part // PARTS)
            moments.append(cpu.wall)
        wait_until_complete(settings, topic)
        spent, wall = cpu.seconds(), cpu.wall
        found = Round(
            bucket,
            settings,
            len(warm),
            total,
            wall,
            [total / PARTS / (end - begin) for begin, end in pairwise(moments)],
            {process: seconds / total for process, seconds in spent.items()},
            cpu.others(sum(spent.values())),
            before,
            look(live),
        )
    context.progress(
        f"{name}: {found.rate:,.0f}/s on {found.cores:.2f} cores; others took {found.others:.2f}"
    )
    return found


def rates(alerts: Load, found: Round) -> Iterator[Figure]:
    """The rate beside those of Kafka alone, of Ceph alone and of another implementation."""
    rate, parts, bucket = found.rate, found.parts, found.bucket
    packs = [info.size for info in bucket.list("packs/")]
    kafka, ceph = kafka_rate(found.settings, found.total), put_rate(bucket, packs, found.total)
    other = per_object_rate(bucket, alerts)
    name, unit, spread = "stored in both tables", "alerts/s", (min(parts), max(parts))
    rival = Rival("an object per cutout, fastavro, 16 threads, no light curves", other)
    requirement, target = REQUIREMENT[alerts.survey], TARGET[alerts.survey]
    yield Figure(alerts.title, name, rate, unit, rival, requirement, spread, target)
    for rival in (
        Rival("Kafka, records read and dropped", kafka),
        Rival("Ceph, the same packs put by 2 threads", ceph),
    ):
        yield Figure(alerts.title, name, rate, unit, rival)
    first = Rival(f"in the first of {PARTS} parts", parts[0])
    yield Figure(alerts.title, "stored in the last part", parts[-1], unit, first)


def costs(
    subject: str, rate: float, spent: dict[str, float], few: tuple[str, ...] = IDLE
) -> Iterator[Figure]:
    """CPU time by process. `spent` is in seconds per alert; `few` are shown as one."""
    whole = sum(spent.values())
    idle = [process for process in spent if process.startswith(few)]
    others = {"the others": sum(spent.pop(process) for process in idle)}
    for process, seconds in (*sorted(spent.items()), *others.items()):
        share = Rival("all processes", 1e3 * whole)
        yield Figure(subject, f"CPU of {process}", 1e3 * seconds, "ms/alert", share)
    cores = len(os.sched_getaffinity(0))
    limit = Rival(f"wall time of {cores} cores", 1e3 * cores / rate)
    yield Figure(subject, "CPU of all", 1e3 * whole, "ms/alert", limit)


def walls(subject: str, before: Moment, after: Moment, total: int) -> Iterator[Figure]:
    """Wall time of each stage of the functions' flushes, per alert of `total`."""
    for (function, stage), seconds in after.stages.items():
        milliseconds = 1e3 * (seconds - before.stages.get((function, stage), 0.0)) / total
        yield Figure(subject, f"wall time of {function}: {stage}", milliseconds, "ms/alert")


def fill(settings: Settings, topic: str, messages: Sequence[bytes]) -> None:
    """Add messages to a topic, without keys, as Rubin does."""
    client = producer(settings.kafka)
    for message in messages:
        while True:
            try:
                client.produce(topic, message)
                break
            except BufferError:
                client.poll(0.1)
        client.poll(0)
    client.flush(60)


@contextmanager
def paused(processes: Sequence[Process]) -> Iterator[None]:
    """Stop processes for a while, shorter than Kafka's session timeout."""
    pids = [process.pid for process in processes if process.pid]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def wait_until_stored(
    running: System,
    count: int,
    functions: Sequence[str] = (),
    pause: float = LOOK_SECONDS,
) -> Moment:
    """Wait until each of these functions has stored `count` alerts, or their thumbnails.

    Without `functions`, those that take alerts. Raises `StampedeError` if they stall.
    """
    best, since = -1, time.monotonic()
    while True:
        now = look(running, functions)
        if min(now.stored.values()) >= count:
            return now
        if sum(now.stored.values()) > best:
            best, since = sum(now.stored.values()), time.monotonic()
        elif time.monotonic() - since > STALLED_SECONDS:
            raise StampedeError(f"nothing was stored for {STALLED_SECONDS:.0f} s: {now.stored}")
        time.sleep(pause)


def wait_until_complete(settings: Settings, topic: str) -> None:
    """Wait until nothing is missing in the ledger. Raises `StampedeError` if something is."""
    deadline = time.monotonic() + STALLED_SECONDS
    while time.monotonic() < deadline:
        entries = audit(open_bucket(settings), settings, Topics((topic,)))
        if not sum(entry.missing_count for entry in entries):
            return
        time.sleep(LOOK_SECONDS)
    raise StampedeError("the functions have stored all alerts, but the ledger misses some")


def look(running: System, functions: Sequence[str] = ()) -> Moment:
    """The metrics of these functions, or of those that take alerts."""
    functions = functions or functions_of(running.urls)
    stored = dict.fromkeys(functions, 0)
    stages: dict[tuple[str, str], float] = {}
    for function in functions:
        with urllib.request.urlopen(f"{running.urls[function]}/metrics", timeout=30) as response:
            text = response.read().decode()
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == "stampede_flush_alerts_total":
                    stored[function] = int(sample.value)
                elif sample.name == "stampede_flush_stage_seconds_total":
                    stages[function, sample.labels["stage"]] = sample.value
    return Moment(stored, stages)


def sizes(subject: str, bucket: S3Objects, total: int) -> Iterator[Figure]:
    """What is stored: bytes per alert, and PUT requests per 1,000 alerts."""
    for name, prefix in (
        ("packs", "packs/"),
        ("runs of cutouts", "tables/cutouts/"),
        ("runs of detections", "tables/detections/"),
        ("alerts in their own columns", "alerts/"),
        ("packets", "packets/"),
        ("runs of packets", "tables/packets/"),
    ):
        found = [info.size for info in bucket.list(prefix)]
        yield Figure(subject, f"stored in {name}", sum(found) / total, "bytes/alert")
        one = Rival("an object per cutout", 1000.0 * len(KINDS)) if name == "packs" else None
        yield Figure(
            subject, f"requests for {name}", 1e3 * len(found) / total, "PUT/1,000 alerts", one
        )
