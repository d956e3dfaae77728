"""The release, what sends to it, and what sees when its alerts are durable and readable."""

import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, Self
from urllib.parse import urlsplit

import numpy as np
from confluent_kafka import KafkaException

from e2e.cluster.steps import log_progress
from e2e.commands import until
from e2e.duel.contestants import FUNCTIONS, InPod, Knative, skip
from e2e.duel.plan import Plan
from e2e.duel.rest import wait_until_rested
from e2e.on_cluster.kubernetes import Cluster
from e2e.on_cluster.release import Release
from stampede.config.settings import Settings
from stampede.store.runs.schema import CUTOUTS, DETECTIONS, PACKETS
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.visits.alerts import VisitAlerts, simulate
from stampede_bench.visits.reader import Readable, read
from stampede_bench.visits.sender import PARTITIONS, Sender, Sent, Visit, forget, sender
from stampede_bench.visits.times import STALLED_SECONDS, DurableTimes
from stampede_local.kafka import make_topics

HISTORY = 50  # rows: alerts of 129 KB
SAMPLE = 100  # alerts of each visit that are asked for over HTTP
PAUSE = 0.5  # seconds between two requests for an alert that is not there yet
PAUSE_ALONE = 0.1  # the same for a single alert
LEAVING_SECONDS = 90.0
TABLES = {"cutouts": [CUTOUTS.name], "lightcurves": [DETECTIONS.name, PACKETS.name]}
COMPACT = """
from stampede.handlers.compact import compact_tables
from stampede.config.settings import Settings
compact_tables(Settings())
print("compacted")
"""
# What no contest measures. `compact` has no timer then: its passes come between contests.
OFF = {
    **{f"functions.{name}.enabled": "false" for name in ("thumbnails", "compact")},
    **{f"functions.{name}.enabled": "false" for name in ("reconcile", "scrub")},
    **{"replica.url": "", "replica.existingSecret": ""},
}
Contestant = Knative | InPod


class Seen(NamedTuple):
    """Seconds from Kafka's timestamp: of all alerts until durable, of a sample until readable."""

    durable: np.ndarray
    readable: np.ndarray

    @classmethod
    def all_of(cls, parts: Sequence[Self]) -> Self:
        """Those of several visits together."""
        return cls(*map(np.concatenate, zip(*parts, strict=True)))


class Asked(NamedTuple):
    """A visit under way; its times begin at `begin` (s, UNIX), or at Kafka's timestamps."""

    visit: Visit
    sending: "Future[Sent]"
    reading: "Future[dict[int, Readable]] | None"
    begin: float | None = None


class Arena:
    """Where contestants meet."""

    def __init__(
        self,
        release: Release,
        kafka: str,
        topic: str,
        alerts: VisitAlerts,
        send: Sender,
        times: DurableTimes,
        plan: Plan,
    ) -> None:
        self.release, self.times, self.plan = release, times, plan
        self._kafka, self._topic, self._alerts, self._sender = kafka, topic, alerts, send
        self._url = f"http://{release.cluster.ingress}"
        self._host = urlsplit(release.url("read")).netloc
        self._pool = ThreadPoolExecutor(8)
        self._next = int(time.time()) * 10_000_000  # no alert of an earlier run is stored again
        self._sending: list[Future[Sent]] = []

    def send(self, size: int, seconds: float, begin: float = 0.0, readable: bool = True) -> Asked:
        """Send the next alerts from `begin` on, evenly, and ask for a sample of them."""
        visit = Visit(self._next, size, begin or time.time() + 1, seconds)
        self._next += size
        reading = None
        if readable:
            numbers = random.Random(visit.first).sample(visit.numbers, min(SAMPLE, size))
            pause = PAUSE if size > 1 else PAUSE_ALONE
            reading = self._pool.submit(
                read, self._url, self._alerts, numbers, pause, visit.begin, self._host
            )
        self._sending.append(self._sender.send(visit))
        return Asked(visit, self._sending[-1], reading)

    def seen(self, asked: Asked) -> Seen:
        """The times of a visit, once all of it is durable and the sample is read."""
        sent = asked.sending.result()
        begin = sent.times if asked.begin is None else np.full(len(sent.times), asked.begin)
        durable = self.times.wait(sent) - begin
        if asked.reading is None:
            return Seen(durable, np.empty(0))
        found = asked.reading.result()
        at = np.array([number - asked.visit.first for number in sorted(found)])
        read_at = np.array([max(found[number]) for number in sorted(found)])
        return Seen(durable, read_at - begin[at])

    def stored_by(self, function: str, asked: Asked) -> float:
        """Seconds until one function has stored all of a visit, which only it may have taken."""
        sent = asked.sending.result()

        def stored() -> float:
            self.times.look()
            return float(np.max([self.times.of(table, sent) for table in TABLES[function]]))

        until(lambda: np.isfinite(stored()), STALLED_SECONDS, 0.5)
        return stored() - float(sent.times.min())

    def skip(self, contestant: Contestant) -> None:
        """Let a contestant's groups begin behind what was sent.

        Kafka refuses while a source is still leaving its group.
        """

        def skipped(function: str) -> bool:
            try:
                skip(self._kafka, self._topic, contestant.group_of(function), PARTITIONS)
            except KafkaException:
                return False
            return True

        for function in FUNCTIONS:
            until(lambda name=function: skipped(name), LEAVING_SECONDS, 2)

    def rest(self) -> float:
        """Wait until the pods rest; the cores that they use then."""
        return wait_until_rested()

    def tidy(self) -> None:
        """Have Kafka forget the contest before, and merge its runs."""
        self.times.look()
        sending, self._sending = self._sending, []
        forget(self._kafka, self._topic, [each.result() for each in sending])
        if not self.plan.busy:
            self.release.python(COMPACT, seconds=300)

    def close(self) -> None:
        """End the threads that read."""
        self._pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def arena(cluster: Cluster, plan: Plan) -> Iterator[tuple[Arena, dict[str, Contestant]]]:
    """Install the release, and start the process that sends."""
    release = Release(cluster, "stampede", "values.yaml")
    site = {
        name: next(
            pod["status"]["podIP"]
            for pod in cluster.get("pods", "site", "--selector", f"app={name}")
        )
        for name in ("ceph", "kafka")
    }
    bootstrap, topic = f"{site['kafka']}:9094", f"duel-{int(time.time())}"
    make_topics(bootstrap, [topic], PARTITIONS)
    log_progress("installing the release")
    # Runs stay long enough to be seen: their coverage says when an alert was stored.
    values: dict[str, Any] = {
        "sources.alerts.topics": f"{{{topic}}}",
        "settings.grace_seconds": 200,
    }
    release.install(**values | ({} if plan.busy else OFF) | plan.values)
    store, keys = f"http://{site['ceph']}:8000/stampede", release.secret("ceph")
    settings = Settings(store=store, access_key=keys["access-key"], secret_key=keys["secret-key"])
    log_progress("simulating alerts")
    alerts = VisitAlerts([*simulate(16, HISTORY)])
    with sender(bootstrap, topic, alerts) as send:
        times = DurableTimes(open_bucket(settings), topic, plan.most_alerts)
        in_pod = partial(InPod, release, topic, plan.keda)
        place = Arena(release, bootstrap, topic, alerts, send, times, plan)
        try:
            yield (
                place,
                {
                    "kept": Knative(release, 1),
                    "one": Knative(release, 1, 1),
                    "zero": Knative(release),
                    "pod": in_pod(1, scaled=False),
                    "keda-kept": in_pod(1),
                    "keda": in_pod(),
                },
            )
        finally:
            place.close()
            times.close()
            in_pod().stop()
            release.uninstall()
