"""Alerts that are fetched from Kafka once for both tables, beside once for each.

In one process, where the function reads Kafka itself, and by CloudEvents, where a source sends them
to the functions. All ways run in turn on the same Ceph and Kafka, round after round, and the CPU
time of all processes is compared. What Kafka sends is counted by its clients.
"""

import time
from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from stampede.events import ALERT_FUNCTIONS, functions_of
from stampede_bench.figures import Bound, Context, Figure, Rival
from stampede_bench.ingestion.cost import totals
from stampede_bench.ingestion.ingest import (
    HISTORY,
    fill,
    paused,
    wait_until_complete,
    wait_until_stored,
)
from stampede_bench.instruments import load
from stampede_bench.instruments.bucket import clear, open_bucket
from stampede_bench.instruments.cpu import Cpu
from stampede_bench.instruments.load import Load
from stampede_bench.instruments.servers import Servers, pids, servers, system
from stampede_local import environment
from stampede_local.ports import free_port
from stampede_local.system import SOURCE, SOURCE_STAGE, System

MOST_CPU = {"lsst": Bound("<=", 0.85, ratio=True), "ztf": Bound("<=", 0.90, ratio=True)}
TARGET_CPU = {"lsst": Bound("<=", 0.75, ratio=True), "ztf": Bound("<=", 0.80, ratio=True)}
MOST_BYTES = Bound("<=", 1.15, ratio=True)  # frames of records, and ends of batches
WARM = 200  # alerts that are stored first
LOOK_SECONDS = 1.0  # each look takes CPU time of a function
TELLING_SECONDS = 3.0  # the Kafka client counts every two
RECEIVED = "stampede_source_received_bytes_total"


class EachFetches(System):
    """A system whose functions take each alert from Kafka for one table each."""

    def _start_alert_functions(self) -> None:
        for name, table in ALERT_FUNCTIONS.items():
            env = environment.of_input(self.settings, self.urls, name, table)
            env["STAMPEDE_FROM_KAFKA"] = "true"
            self._start_process(name, name, env, free_port(), SOURCE_STAGE)


class EachHasASource(System):
    """A system whose functions have a source each."""

    def _start_alert_functions(self) -> None:
        for name, table in ALERT_FUNCTIONS.items():
            self._start_function(name)
            env = environment.of_input(self.settings, self.urls, name, table)
            env["K_SINK"] = self.urls[name]
            self._start_process(f"{SOURCE}-{name}", SOURCE, env, free_port(), SOURCE_STAGE)


class Way(NamedTuple):
    """A way from Kafka to the tables."""

    kind: type[System]
    sources: bool = False


# By what they are compared in: how each table fetches, then how one fetches for both.
WAYS = {
    "in one process": (Way(EachFetches), Way(System)),
    "by CloudEvents": (Way(EachHasASource, True), Way(System, True)),
}


def measure(context: Context) -> Iterator[Figure]:
    """Each survey alone."""
    with servers(context, kafka=True) as running:
        for survey in ("lsst", "ztf"):
            count = context.scaled(3000, 500, least=40)
            context.progress(f"simulating {count:,} {survey.upper()} alerts")
            alerts = load.simulated(survey, count, HISTORY[survey], objects=max(20, count // 5))
            for subject, ways in WAYS.items():
                yield from compare(context, running, alerts, subject, ways)


def compare(
    context: Context, running: Servers, alerts: Load, subject: str, ways: tuple[Way, Way]
) -> Iterator[Figure]:
    """Two ways in turn."""
    cpu: tuple[list[float], list[float]] = ([], [])
    sent: tuple[list[float], list[float]] = ([], [])
    for number in range(context.scaled(3, 1)):
        for once, way in enumerate(ways):
            name = f"fetch-{alerts.survey}-{'-'.join(subject.lower().split())}-{once}-{number}"
            seconds, share = one_round(context, running, name, alerts, way)
            cpu[once].append(1e3 * seconds)
            sent[once].append(share)
            context.progress(f"{name}: {1e3 * seconds:.2f} ms and {share:.3f} of the bytes")
    title = f"{subject}: {alerts.title}"
    of_all = Rival("each table has its own", median(cpu[0]))
    spread = min(cpu[1]), max(cpu[1])
    held = not (context.quick or ways[1].sources)
    bound, target = (each[alerts.survey] if held else None for each in (MOST_CPU, TARGET_CPU))
    name, mean = "CPU of all, fetched once", median(cpu[1])
    yield Figure(title, name, mean, "ms/alert", of_all, bound, spread, target)
    size = alerts.size / 1e3
    for once, what in ((1, "once"), (0, "for each table")):
        yield Figure(
            title,
            f"Kafka's bytes, fetched {what}",
            size * median(sent[once]),
            "KB/alert",
            Rival("bytes of an alert", size),
            MOST_BYTES if once else None,
        )


def one_round(
    context: Context,
    running: Servers,
    name: str,
    alerts: Load,
    way: Way,
) -> tuple[float, float]:
    """Store all alerts once; CPU seconds of all processes an alert, and bytes received a byte."""
    warm = alerts.messages[: min(WARM, len(alerts.messages) // 4)]
    settings = running.settings(name).model_copy(
        update={"group": name, "kafka_options": {"session.timeout.ms": "300000"}}  # see `paused`
    )
    with system(context, name, settings, (name,), way.sources, way.kind) as live:
        fill(settings, name, warm)
        wait_until_stored(live, len(warm))
        time.sleep(TELLING_SECONDS)
        before = received(live)
        readers = [live.processes[each] for each in readers_of(live)]
        with paused([*readers, live.processes["read"]]):
            fill(settings, name, alerts.messages)
            cpu = Cpu(running.pids | pids(list(live.processes.values())))
        wait_until_stored(live, len(warm) + len(alerts.messages), pause=LOOK_SECONDS)
        seconds = sum(cpu.seconds().values())
        time.sleep(TELLING_SECONDS)
        taken = received(live) - before
        wait_until_complete(settings, name)
    clear(open_bucket(settings))
    return seconds / len(alerts.messages), taken / sum(map(len, alerts.messages))


def readers_of(live: System) -> list[str]:
    """The processes that read Kafka: sources, or the functions themselves."""
    return [name for name in live.urls if name.startswith(SOURCE)] or functions_of(live.urls)


def received(live: System) -> int:
    """Bytes that Kafka has sent to what reads it."""
    return sum(totals(live.urls[name], RECEIVED)[RECEIVED] for name in readers_of(live))
