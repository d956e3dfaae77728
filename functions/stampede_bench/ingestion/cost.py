"""What a million alerts cost: CPU time, requests to S3, bytes, of all processes on an alert's way.

First the alerts arrive, until they are durable in both tables and their thumbnails are drawn. Then
compaction merges what is due, so its cost stands apart: it merges most rows once here, and each of
them several times in a table of years (docs/scale.md). `tools/capacity.py` computes a page of that.
"""

import urllib.request
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from stampede.events import ALERT_FUNCTIONS
from stampede.events.auth.access import key_header
from stampede.runtime.progress import silent
from stampede.store.runs.schema import ALL_TABLES
from stampede.store.s3.bucket import S3Objects
from stampede.store.tables.table import Table
from stampede_bench.figures import Bound, Context, Figure, Rival
from stampede_bench.ingestion.ingest import (
    fill,
    paused,
    wait_until_complete,
    wait_until_stored,
)
from stampede_bench.instruments import load
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.instruments.cpu import Cpu, peak_memory
from stampede_bench.instruments.gateway import Gateway
from stampede_bench.instruments.load import Load
from stampede_bench.instruments.servers import pids, reporter
from stampede_local import installer
from stampede_local.kafka import LocalKafka
from stampede_local.plan import SystemPlan
from stampede_local.ports import free_port
from stampede_local.system import System
from stampede_local.up import send

HISTORIES = (  # survey, history rows, alerts
    ("lsst", load.LSST_HISTORY, 3000),
    ("lsst", load.LONG_LSST_HISTORY, 1200),
    ("ztf", load.ZTF_HISTORY, 3000),
)
DRAWN = (*ALERT_FUNCTIONS, "thumbnails")
WARM = 300  # alerts that are stored first
MILLION = 1e6
LOOK_SECONDS = 1.0  # each look at the metrics takes CPU time
PACKS = ("packs/", "alerts/", "packets/", "thumbnails/")
# Names of processes by the part of an alert's way; those of Ceph and Kafka have several.
PARTS = {
    "sources": ("source",),
    "cutouts": ("cutouts",),
    "cutouts workers": ("cutouts workers",),
    "lightcurves": ("lightcurves",),
    "lightcurves workers": ("lightcurves workers",),
    "notifications": ("notifications",),
    "broker": ("broker",),
    "thumbnails": ("thumbnails",),
    "compact": ("compact",),
    "Ceph": ("radosgw", "ceph-osd", "ceph-mon"),
    "Kafka": ("kafka",),
}
CPU, GB = "CPU s", "GB"
KINDS = ("PUT", "GET", "HEAD", "LIST", "DELETE")
ARRIVE, COMPACT = "until drawn", "to compact"
# The bounds are half again what was measured on a busy machine, of bytes a tenth.
MOST_CPU = {
    "lsst": (Bound("<=", 9e3), Bound("<=", 5e3)),
    "ztf": (Bound("<=", 6e3), Bound("<=", 3e3)),
}
MOST_STORED = {
    "lsst": Bound("<=", 0.40, ratio=True),
    "ztf": Bound("<=", 0.9, ratio=True),
}
MOST_PUTS = Bound("<=", 90e3)  # of batches of a hundred alerts


class Spent(NamedTuple):
    """What a phase took: CPU seconds by part, requests by kind, bytes written."""

    cpu: dict[str, float]
    requests: Counter[str]
    written: int


def measure(context: Context) -> Iterator[Figure]:
    """Each survey in a system of its own."""
    for alerts, live, found in systems(context, "cost"):
        yield from one_survey(context, live, alerts, found)


def systems(context: Context, benchmark: str) -> Iterator[tuple[Load, System, dict[str, int]]]:
    """For each survey its alerts, a system of its own, and the ids of its processes by name."""
    installer.ensure(installer.KAFKA, context.install, context.progress)
    for survey, rows, most in HISTORIES:
        count = context.scaled(most, most * 4 // 5, least=40)
        context.progress(f"simulating {count:,} {survey.upper()} alerts")
        alerts = load.simulated(survey, count + min(WARM, count), rows, max(20, count // 5))
        name = f"{survey}-{rows}"
        directory = context.scratch / f"kafka-{name}"
        with LocalKafka(directory, free_port(2), progress=context.progress) as kafka:
            plan = SystemPlan(
                context.scratch / name,
                None,
                kafka.bootstrap,
                (f"{benchmark}-{name}",),
                free_port(),
                context.install,
                sources=True,  # the page of capacity is about clusters
            )
            with System(plan, silent, reporter(context)) as live:
                yield alerts, live, pids([*kafka.processes, *live.processes.values()])


def one_survey(
    context: Context, live: System, alerts: Load, found: Mapping[str, int]
) -> Iterator[Figure]:
    """Store all alerts once, draw them, compact; what that took."""
    [topic] = live.plan.topics
    first = min(WARM, len(alerts.messages) // 2)
    warm, rest = alerts.messages[:first], alerts.messages[first:]
    bucket = open_bucket(live.settings)
    fill(live.settings, topic, warm)
    wait_until_stored(live, len(warm), DRAWN, LOOK_SECONDS)
    before = stored(bucket)
    # `read` lists tables every 2 s, whether alerts come or not: that is no cost of an alert.
    with paused([live.processes["read"]]):
        phase = Phase(live, found)
        fill(live.settings, topic, rest)
        wait_until_stored(live, len(alerts.messages), DRAWN, LOOK_SECONDS)
        arrived, appended = phase.end(), size_of(bucket, "tables/")
        phase = Phase(live, found)
        send("compact", live.urls["compact"], key_header(live.settings))
        merged = phase.end()
    wait_until_complete(live.settings, topic)
    context.progress(f"{alerts.survey}: {len(rest):,} alerts stored, drawn and compacted")
    subject = f"a million {alerts.title}"
    each = MILLION / len(rest)
    after = stored(bucket)
    for what, spent in ((ARRIVE, arrived), (COMPACT, merged)):
        yield from costs(subject, what, spent, each)
    cpu = sum(chain(arrived.cpu.values(), merged.cpu.values())) * each
    requirement, target = MOST_CPU[alerts.survey] if alerts.usual else (None, None)
    yield Figure(subject, "CPU of all", cpu, CPU, None, requirement, None, target)
    received = Rival("as sent", sum(map(len, rest)) * each / 1e9)
    held = sum(after.values()) - sum(before.values())
    bound = MOST_STORED[alerts.survey] if alerts.usual else None
    yield Figure(subject, "stored", held * each / 1e9, GB, received, bound)
    first, rewritten = compacted(live.urls["compact"])
    yield Figure(
        subject, "merged for the first time", first / 1e6, "MB", Rival("all", appended / 1e6)
    )
    yield Figure(subject, "left of it, without what repeats", rewritten / 1e6, "MB")
    memory = peak_memory(found)
    for part, names in PARTS.items():
        most = max(memory.get(name, 0) for name in names)
        yield Figure(subject, f"memory of {part}", most / 1e6, "MB at most")


def costs(subject: str, what: str, spent: Spent, each: float) -> Iterator[Figure]:
    """CPU time, requests and bytes of a phase, of a million alerts."""
    for part, seconds in spent.cpu.items():
        yield Figure(subject, f"CPU of {part} {what}", seconds * each, CPU)
    for kind in KINDS:
        requirement = MOST_PUTS if (kind, what) == ("PUT", ARRIVE) else None
        yield Figure(
            subject, f"{kind} {what}", spent.requests[kind] * each, "requests", None, requirement
        )
    yield Figure(subject, f"written {what}", spent.written * each / 1e9, GB)


class Phase:
    """What is spent from now on. Nothing is deleted meanwhile: what is new was written."""

    def __init__(self, live: System, found: Mapping[str, int]) -> None:
        self._bucket = open_bucket(live.settings)
        self._before = size_of(self._bucket)
        self._gateway = Gateway(live.processes["radosgw"])
        self._cpu = Cpu(found)

    def end(self) -> Spent:
        """What was spent so far."""
        spent, requests = self._cpu.seconds(), self._gateway.requests()
        by_part = {
            part: sum(spent.get(name, 0.0) for name in names) for part, names in PARTS.items()
        }
        return Spent(by_part, requests, size_of(self._bucket) - self._before)


def compacted(url: str) -> tuple[int, int]:
    """Bytes of runs that `compact` merged for the first time, and bytes that it wrote."""
    new, written = "stampede_compacted_new_bytes_total", "stampede_compacted_bytes_total"
    found = totals(url, new, written)
    return found[new], found[written]


def totals(url: str, *names: str) -> dict[str, int]:
    """The sums of some counters of a function."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=30) as response:
        families = [*text_string_to_metric_families(response.read().decode())]
    samples = [sample for family in families for sample in family.samples]
    return {
        name: int(sum(sample.value for sample in samples if sample.name == name)) for name in names
    }


def size_of(bucket: S3Objects, prefix: str = "") -> int:
    """Bytes of all objects under a prefix."""
    return sum(info.size for info in bucket.list(prefix))


def stored(bucket: S3Objects) -> dict[str, int]:
    """Bytes by kind of object: those that are live, not what a merge has replaced."""
    found = {prefix: size_of(bucket, prefix) for prefix in PACKS}
    for spec in ALL_TABLES.values():
        table = Table(bucket, spec)
        table.refresh()
        found[f"tables/{spec.name}/"] = sum(part.object.size for part in table.runs())
        table.close()
    return found
