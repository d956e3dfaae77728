"""``make e2e-duel``: the same alerts to the same image on one node, by Knative and by KEDA.

Both ways run `cutouts` and `lightcurves` with at most three pods each, from zero. Thumbnails,
compaction, both sites and all else run meanwhile as they do always. Times begin at Kafka's
timestamp of an alert, and end when the store has it in all tables.

``python -m e2e.duel KEDA`` lets only KEDA do it.
"""

import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from e2e.cluster import Failed, choose, keda
from e2e.cluster.binaries import tool
from e2e.cluster.steps import exclusive_use, log_progress
from e2e.commands import until
from e2e.duel.contestants import FUNCTIONS, Keda, Knative, skip
from e2e.duel.route import to_pods
from e2e.duel.usage import Usage
from e2e.on_cluster.__main__ import temporarily_up
from e2e.on_cluster.kubernetes import Cluster
from e2e.on_cluster.release import Release
from e2e.places import ROOT
from stampede.settings import Settings
from stampede_bench.bucket import open_bucket
from stampede_bench.visit_alerts import VisitAlerts, simulate
from stampede_bench.visit_sender import PARTITIONS, Sender, Sent, Visit, sender
from stampede_bench.visit_times import DurableTimes
from stampede_local.kafka import make_topics

TOPIC = "duel"
COUNT = 4_000  # alerts of a burst, and of a backlog
SECONDS = 5.0  # of a burst
ALONE = 4  # single alerts, each from zero
HISTORY = 50  # rows: alerts of 129 KB
MANY = 100  # alerts of which the CPU is worth telling
KILL_SECONDS = 6.0  # between two pods that are killed
Contestant = Knative | Keda


class Result(NamedTuple):
    """One contest of one contestant."""

    seconds: np.ndarray  # from Kafka's timestamp until durable, sorted by number
    usage: Usage

    def share(self, percent: float) -> float:
        """A percentile of the seconds."""
        return float(np.percentile(self.seconds, percent))


class Arena:
    """The release, and what sends to it and looks at its store."""

    def __init__(self, release: Release, kafka: str, send: Sender, times: DurableTimes) -> None:
        self.release, self._kafka, self._send, self.times = release, kafka, send, times
        self._next = 0

    def visit(self, size: int, seconds: float) -> Visit:
        """The next alerts."""
        visit = Visit(self._next, size, time.time() + 1, seconds)
        self._next += size
        return visit

    def send(self, visit: Visit) -> Sent:
        """Send a visit; returns when Kafka has it."""
        return self._send.send(visit).result()

    def skip(self, contestant: Contestant) -> None:
        """Let a contestant's groups begin behind what is stored."""
        for function in FUNCTIONS:
            skip(self._kafka, TOPIC, contestant.group_of(function), PARTITIONS)


def contest(
    arena: Arena, contestant: Contestant, run: Callable[[Arena, Contestant], list[Sent]]
) -> Result:
    """Run a contest, until all of it is durable and the functions are at rest again."""
    with Usage(arena.release.cluster, group_of) as usage:
        sent = run(arena, contestant)
        seconds = [arena.times.wait(one) - one.times for one in sent]
        until(contestant.at_rest, 180, 1)
    return Result(np.concatenate(seconds), usage)


def singles(arena: Arena, contestant: Contestant) -> list[Sent]:
    """Single alerts, each when the functions are at rest."""
    sent = []
    for _ in range(ALONE):
        until(contestant.at_rest, 180, 1)
        sent.append(arena.send(arena.visit(1, 0.0)))
        arena.times.wait(sent[-1])
    return sent


def burst(arena: Arena, contestant: Contestant) -> list[Sent]:
    """A burst to functions that are at rest."""
    return [arena.send(arena.visit(COUNT, SECONDS))]


def killed(arena: Arena, contestant: Contestant) -> list[Sent]:
    """A burst, while a pod of a function is killed every six seconds."""
    sent = burst(arena, contestant)
    chance = random.Random(1)
    for _ in range(6):
        time.sleep(KILL_SECONDS)
        pods = [pod["metadata"]["name"] for name in FUNCTIONS for pod in contestant.pods(name)]
        if pods:
            arena.release.kubectl(
                *(
                    "delete",
                    "pod",
                    chance.choice(pods),
                    "--grace-period=0",
                    "--force",
                    "--wait=false",
                )
            )
    return sent


def backlog(arena: Arena, contestant: Contestant) -> list[Sent]:
    """Alerts that wait in Kafka; their times begin when the contestant is started."""
    contestant.stop()
    sent = arena.send(arena.visit(COUNT, 0.0))
    begin = time.time()
    contestant.start()
    return [sent._replace(times=np.full(len(sent.times), begin))]


CONTESTS = {
    f"{ALONE} single alerts, one at a time": singles,
    f"a burst of {COUNT:,} in {SECONDS:.0f} s": burst,
    f"the same, a pod killed every {KILL_SECONDS:.0f} s": killed,
    f"a backlog of {COUNT:,}, from nothing": backlog,
}


def group_of(namespace: str, pod: str) -> str:
    """The group of a pod: what its CPU is counted as; empty if it takes no part."""
    if namespace in ("knative-serving", "traefik"):
        return "Knative" if "webhook" not in pod else ""
    if namespace == keda.NAMESPACE:
        return "KEDA"
    if namespace == "stampede" and any(f"-{name}-" in pod for name in FUNCTIONS):
        return "sources" if "-alerts-" in pod and "duel-" not in pod else "functions"
    return ""


def lines(title: str, name: str, result: Result) -> Iterator[str]:
    """A row of the table."""
    cpu, count = result.usage.cpu(), len(result.seconds)

    def spent(*groups: str, only: str = "", without: str = "") -> float:
        return sum(
            seconds
            for (group, container), seconds in cpu.items()
            if group in groups and (not only or container == only) and container != without
        )

    costs = ["", "", ""]  # of a few alerts they are noise
    if count >= MANY:
        work = spent("functions", "sources", without="queue-proxy")
        proxy, system = spent("functions", only="queue-proxy"), spent("Knative", "KEDA")
        costs = [f"{1e3 * each / count:.1f}" for each in (work, proxy, system)]
    pods = result.usage.pod_seconds
    times = [f"{result.share(percent):.1f}" for percent in (50, 98, 100)]
    most = result.usage.most["functions"]
    cells = [name, title, *times, *costs, f"{pods['functions']:.0f}", str(most)]
    yield f"| {' | '.join(cells)} |"


HEAD = (
    "| contest | by | durable, s: p50 | p98 | max | CPU of sources and functions, ms an alert | "
    "queue-proxy | Knative and KEDA themselves | pod-seconds of functions | most pods |\n"
    "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"
)


@contextmanager
def arena(cluster: Cluster) -> Iterator[tuple[Arena, list[Contestant]]]:
    """Install the release, and start the process that sends."""
    release = Release(cluster, "stampede", "values.yaml")
    site = {
        name: next(
            pod["status"]["podIP"]
            for pod in cluster.get("pods", "site", "--selector", f"app={name}")
        )
        for name in ("ceph", "kafka")
    }
    bootstrap = f"{site['kafka']}:9094"
    make_topics(bootstrap, [TOPIC], PARTITIONS)
    log_progress("installing the release")
    # Runs stay long enough to be seen: their coverage says when an alert was stored.
    release.install(sources__alerts__topics=f"{{{TOPIC}}}", settings__grace_seconds=200)
    address = {"store": f"http://{site['ceph']}:8000/stampede"}
    keys = release.secret("ceph")
    settings = Settings(**address, access_key=keys["access-key"], secret_key=keys["secret-key"])
    log_progress("simulating alerts")
    alerts = VisitAlerts([*simulate(16, HISTORY)])
    most = 10 * (COUNT + ALONE)
    with sender(bootstrap, TOPIC, alerts) as send:
        times = DurableTimes(open_bucket(settings), TOPIC, most)
        keda_of = Keda(release, TOPIC, "kafka.site.svc:9092")
        try:
            all_of_them = [Knative(release, 1), Knative(release), keda_of]
            yield Arena(release, bootstrap, send, times), all_of_them
        finally:
            times.close()
            keda_of.stop()
            release.uninstall()


def main() -> int:
    """Run all contests, and write the table; the exit status."""
    backend = choose()
    try:
        with exclusive_use(), temporarily_up(backend):
            keda.up(backend)
            cluster = Cluster(backend, tool("helm"))
            cluster.send_urls_to_ingress()
            report = fight(cluster)
    except Failed as failed:
        print(failed, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; finished builds are kept", file=sys.stderr)
        return 130
    print(report)
    (ROOT / "build").mkdir(exist_ok=True)
    Path(ROOT / "build" / "duel.md").write_text(report + "\n")
    return 0


def fight(cluster: Cluster) -> str:
    """The table of all contests."""
    table = [HEAD]
    with to_pods(cluster), arena(cluster) as (place, contestants):
        for contestant in contestants:
            if not any(word in contestant.title for word in sys.argv[1:] or [""]):
                continue
            contestant.prepare()
            contestant.stop()
            place.skip(contestant)
            contestant.start()
            until(contestant.at_rest, 180, 1)
            for name, run in CONTESTS.items():
                log_progress(f"{contestant.title}: {name}")
                result = contest(place, contestant, run)
                table += lines(contestant.title, name, result)
                print(table[-1], flush=True)
            contestant.stop()
    return "\n".join(table)


if __name__ == "__main__":
    sys.exit(main())
