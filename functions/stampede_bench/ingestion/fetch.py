"""Alerts that are fetched from Kafka once for both tables, beside once for each.

Both ways run in turn on the same Ceph and Kafka, round after round, and the CPU time of all
processes is compared. What Kafka sends is counted by the functions' Kafka clients.
"""

import time
import urllib.request
from collections.abc import Callable, Iterator
from statistics import median

from prometheus_client.parser import text_string_to_metric_families

from stampede.config.settings import Settings
from stampede.events import ALERT_FUNCTIONS, functions_of
from stampede.runtime.progress import silent
from stampede_bench.figures import Bound, Context, Figure, Rival
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
from stampede_bench.instruments.servers import Servers, pids, reporter, servers
from stampede_local import environment
from stampede_local.plan import SystemPlan
from stampede_local.ports import free_port
from stampede_local.system import SOURCE_STAGE, System

MOST_CPU = {"lsst": Bound("<=", 0.75, ratio=True), "ztf": Bound("<=", 0.80, ratio=True)}
MOST_BYTES = Bound("<=", 1.03, ratio=True)  # frames of records, and what clients say besides
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


def measure(context: Context) -> Iterator[Figure]:
    """Each survey alone."""
    with servers(context, kafka=True) as running:
        for survey in ("lsst", "ztf"):
            count = context.scaled(3000, 500, least=40)
            context.progress(f"simulating {count:,} {survey.upper()} alerts")
            alerts = load.simulated(survey, count, HISTORY[survey], objects=max(20, count // 5))
            yield from one_survey(context, running, alerts)


def one_survey(context: Context, running: Servers, alerts: Load) -> Iterator[Figure]:
    """Both ways in turn."""
    ways: dict[str, Callable[..., System]] = {"each": EachFetches, "once": System}
    cpu: dict[str, list[float]] = {way: [] for way in ways}
    sent: dict[str, list[float]] = {way: [] for way in ways}
    for number in range(context.scaled(3, 1)):
        for way, made in ways.items():
            name = f"fetch-{alerts.survey}-{way}-{number}"
            seconds, received = one_round(context, running, name, alerts, made)
            cpu[way].append(seconds)
            sent[way].append(received)
            context.progress(f"{name}: {1e3 * seconds:.2f} ms and {received:.3f} of the bytes")
    of_all = Rival("each table has its own", 1e3 * median(cpu["each"]))
    spread = 1e3 * min(cpu["once"]), 1e3 * max(cpu["once"])
    bound = None if context.quick else MOST_CPU[alerts.survey]
    mean = 1e3 * median(cpu["once"])
    yield Figure(alerts.title, "CPU of all, fetched once", mean, "ms/alert", of_all, bound, spread)
    for way, title in (("once", "once"), ("each", "for each table")):
        yield Figure(
            alerts.title,
            f"Kafka's bytes, fetched {title}",
            alerts.size / 1e3 * median(sent[way]),
            "KB/alert",
            Rival("bytes of an alert", alerts.size / 1e3),
            MOST_BYTES if way == "once" else None,
        )


def one_round(
    context: Context,
    running: Servers,
    name: str,
    alerts: Load,
    made: Callable[..., System],
) -> tuple[float, float]:
    """Store all alerts once; CPU seconds of all processes an alert, and bytes received a byte."""
    warm = alerts.messages[: min(WARM, len(alerts.messages) // 4)]
    settings = running.settings(name).model_copy(
        update={"group": name, "kafka_options": {"session.timeout.ms": "300000"}}  # see `paused`
    )
    with started(context, name, settings, made) as live:
        fill(settings, name, warm)
        wait_until_stored(live, len(warm))
        time.sleep(TELLING_SECONDS)
        before = received(live)
        readers = [live.processes[each] for each in functions_of(live.urls)]
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


def started(context: Context, name: str, settings: Settings, made: Callable[..., System]) -> System:
    """A system on servers that run."""
    plan = SystemPlan(
        context.scratch / name, settings.store, settings.kafka, (name,), free_port(), False
    )
    live = made(plan, silent, reporter(context))
    live.settings = settings
    return live


def received(live: System) -> float:
    """Bytes that Kafka has sent to the functions that take alerts."""
    total = 0.0
    for name in functions_of(live.urls):
        with urllib.request.urlopen(f"{live.urls[name]}/metrics", timeout=30) as response:
            text = response.read().decode()
        total += sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == RECEIVED
        )
    return total
