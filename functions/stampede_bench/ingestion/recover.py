"""After an outage of the store: how fast the backlog in Kafka is stored.

Ceph's gateway is killed while alerts are stored, and more alerts come into Kafka. None of them may
be lost or become a dead letter. Then the gateway starts again. The rate is compared with the 300
alerts/s of a survey: at twice that rate, the backlog of an hour is stored in an hour.
"""

import time
from collections.abc import Iterator

from stampede.errors import StampedeError, StoreDown
from stampede.store.s3.bucket import S3Objects
from stampede_bench.figures import Bound, Context, Figure, Rival
from stampede_bench.ingestion.ingest import (
    HISTORY,
    fill,
    look,
    wait_until_complete,
    wait_until_stored,
)
from stampede_bench.instruments import load
from stampede_bench.instruments.bucket import clear, open_bucket
from stampede_bench.instruments.cpu import Cpu
from stampede_bench.instruments.load import Load
from stampede_bench.instruments.servers import Servers, pids, servers, system

SURVEY = Rival("what a survey sends", 300.0)
REQUIREMENT = {"lsst": Bound(">=", 1.6, ratio=True), "ztf": Bound(">=", 2.0, ratio=True)}
TARGET = Bound(">=", 3.0, ratio=True)
TIMES = 4  # that each alert of the backlog is sent
AWAY_SECONDS = 8.0  # the shortest outage
BACK_SECONDS = 60.0
LOOK_SECONDS = 0.05


def measure(context: Context) -> Iterator[Figure]:
    """An outage for each survey."""
    with servers(context, kafka=True) as running:
        for survey in ("lsst",) if context.quick else ("lsst", "ztf"):
            count = context.scaled(3000, 1000, least=15)
            context.progress(f"simulating {count:,} {survey.upper()} alerts")
            alerts = load.simulated(survey, count, HISTORY[survey], objects=max(20, count // 3))
            yield from outage(context, running, survey, alerts)


def outage(context: Context, running: Servers, name: str, alerts: Load) -> Iterator[Figure]:
    """One outage, with a topic and a bucket of its own."""
    messages, topic = TIMES * alerts.messages, f"recover-{name}"
    settings = running.settings(topic).model_copy(update={"group": topic})
    bucket, gateway = open_bucket(settings), running.ceph.gateway
    with system(context, name, settings, (topic,)) as live:
        early = messages[: max(1, min(300, len(messages) // 4))]
        fill(settings, topic, early)
        wait_until_stored(live, len(early))
        gateway.kill()
        away = time.monotonic()
        fill(settings, topic, messages)
        time.sleep(max(0.0, away + AWAY_SECONDS - time.monotonic()))
        # Requests that were under way when the gateway died may or may not have succeeded.
        before = sum(look(live).stored.values())
        cpu = Cpu(running.pids | pids(list(live.processes.values())))
        gateway.start()
        wait_until_back(bucket)
        back = time.monotonic()
        while sum(look(live).stored.values()) == before:
            if time.monotonic() > back + BACK_SECONDS:
                raise StampedeError(
                    f"nothing stored {BACK_SECONDS:.0f} s after the store came back"
                )
            time.sleep(LOOK_SECONDS)
        first, begun = look(live), time.monotonic()
        wait_until_stored(live, len(early) + len(messages))
        seconds = time.monotonic() - begun
        wait_until_complete(settings, topic)
        spent = sum(cpu.seconds().values())
        others = cpu.others(spent)
    letters = sum(1 for _ in bucket.list("deadletters/"))
    if letters:
        raise StampedeError(f"an outage made {letters} dead letters")
    rate = (len(early) + len(messages) - min(first.stored.values())) / seconds
    context.progress(f"{name}: {rate:,.0f}/s, {begun - back:.1f} s after the store came back")
    subject = f"after an outage: {alerts.title}"
    yield Figure(subject, "drained", rate, "alerts/s", SURVEY, REQUIREMENT[name], None, TARGET)
    yield Figure(subject, "back at work after", begun - back, "s", None, Bound("<=", 10.0))
    taken = Rival("taken by others meanwhile, the measuring itself included", others)
    yield Figure(subject, "cores used", spent / cpu.wall, "cores", taken)
    yield Figure(subject, "all in both tables, none a dead letter", len(messages), "alerts")
    clear(bucket)


def wait_until_back(bucket: S3Objects) -> None:
    """Wait until the store answers. Raises `StampedeError` if it does not."""
    deadline = time.monotonic() + BACK_SECONDS
    while True:
        try:
            return bucket.ensure_bucket()
        except StoreDown as error:
            if time.monotonic() > deadline:
                raise StampedeError("the store did not come back") from error
