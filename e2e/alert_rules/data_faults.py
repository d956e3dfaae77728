"""Faults of stores and of messages: each lasts for a ``with`` block, and is mended at its end."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from itertools import islice

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from e2e.alert_rules.process_faults import Fault, paused
from e2e.alert_rules.traffic import repeatedly
from e2e.alert_rules.watched import NIGHTS, OBJECTS, SECONDS, SEED, TOPIC, Watched
from e2e.commands import until
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.store.ceph.quotas import usage
from stampede.store.open import first_site, open_objects, open_replica
from stampede_local.ceph import LocalCeph
from stampede_local.kafka import make_topics
from stampede_simulator.simulator import Fields, Simulator
from stampede_simulator.write import TOPICS, write
from tests.support.alerts import lost_detector as lost_alerts
from tests.support.proofs import bodies
from tests.support.store.stored_packets import store

ENOUGH = 3000  # requests of the store that a fault waits for: more than come
READERS = 4  # at once: each waits long for a response
HOUR = 3_600_000  # ms
NIGHT = "nights_{:%Y%m%d}_{}"
MORE_THAN_IN_FLIGHT = 600
BACKLOG, AT_ONCE = 200, 20  # old alerts: how many wait in Kafka, how many are sent together


def requests(how: str) -> Fault:
    """What is done to each request of the first site: see `e2e.faults.proxy.FAULTS`."""

    @contextmanager
    def fault(watched: Watched) -> Iterator[None]:
        watched.proxies[0].inject(how, ENOUGH)
        try:
            yield
        finally:
            watched.proxies[0].be_kind()

    return fault


@contextmanager
def slow_store(watched: Watched) -> Iterator[None]:
    """Each request takes long, and some people read; then it is fast."""
    with requests("slow")(watched), ExitStack() as stack:
        for _ in range(READERS):
            stack.enter_context(repeatedly(watched.read, 0.5))
        yield


@contextmanager
def damaged_pack(watched: Watched) -> Iterator[None]:
    """A pack has other bytes at both sites; the second gets it back, and the first from there."""
    first, second = open_objects(watched.settings), open_replica(watched.settings)
    pack = next(second.list("packs/"))
    good, bad = second.get(pack.key), bytes(pack.size)
    # At both: `scrub` mends what one site has, and then there is nothing to tell.
    for site in (first, second):
        site.put(pack.key, bad)
    yield
    second.put(pack.key, good)
    until(lambda: first.get(pack.key) == good, SECONDS)


@contextmanager
def small_quota(watched: Watched) -> Iterator[None]:
    """Too much of the bucket's quota is used; then the quota is raised, as the runbook says."""
    used = usage(first_site(watched.settings)).stored_bytes
    assert used
    ceph = LocalCeph(watched.up.data / "ceph", watched.ports["ceph"])
    bucket = ("--quota-scope=bucket", f"--bucket={watched.bucket}")
    ceph.radosgw_admin("quota", "set", *bucket, f"--max-size={50 * used}")
    ceph.radosgw_admin("quota", "enable", *bucket)
    yield
    ceph.radosgw_admin("quota", "set", *bucket, f"--max-size={100_000 * used}")


@contextmanager
def undecodable_messages(watched: Watched) -> Iterator[None]:
    """A topic has messages that are no alerts; then no more."""
    producer = Producer({"bootstrap.servers": watched.up.kafka})

    def send() -> None:
        producer.produce(TOPIC, b"no alert")
        producer.flush(SECONDS)

    with repeatedly(send, 1):
        yield


@contextmanager
def next_version(watched: Watched) -> Iterator[None]:
    """The survey has a topic for the next version, which nobody reads; then it has none."""
    later = TOPIC.replace("v1", "v2")
    make_topics(watched.up.kafka, [later], 1)
    yield
    admin = AdminClient({"bootstrap.servers": watched.up.kafka})
    admin.delete_topics([later])[later].result(SECONDS)


@contextmanager
def renamed_nights(watched: Watched) -> Iterator[None]:
    """One programme has a topic of today, the other none since three nights; then both have one."""
    today = datetime.now(UTC)
    make_topics(
        watched.up.kafka, [NIGHT.format(today - timedelta(3), 1), NIGHT.format(today, 2)], 1
    )
    yield
    make_topics(watched.up.kafka, [NIGHT.format(today, 1)], 1)


@contextmanager
def night_made_anew(watched: Watched) -> Iterator[None]:
    """A topic that is read is deleted and made anew; then it stays."""
    topic = NIGHT.format(datetime.now(UTC) - timedelta(5), 1)
    make_topics(watched.up.kafka, [topic], 1)
    seen = f'stampede_source_topics_made_anew_total{{family="{NIGHTS[0]}"}}'
    until(lambda: watched.prometheus.query(seen), SECONDS)
    admin = AdminClient({"bootstrap.servers": watched.up.kafka})
    admin.delete_topics([topic])[topic].result(SECONDS)

    def made() -> bool:
        with suppress(KafkaException):  # until the old one is gone
            admin.create_topics([NewTopic(topic, 1)])[topic].result(SECONDS)
            return True
        return False

    until(made, SECONDS)
    yield


@contextmanager
def lost_detector(watched: Watched) -> Iterator[None]:
    """A store never got the alerts of a detector; then it has them, and is compared anew."""
    url = (watched.directory / "histories").as_uri()
    changed = {"store": url, "replica": "", "reconcile": "histories"}
    settings = watched.settings.model_copy(update=changed)
    env = {"STAMPEDE_RECONCILE": "histories"}
    store(settings, bodies(lost_alerts.received()))
    with watched.serving("histories", settings, **env):
        yield
    store(settings, bodies(lost_alerts.lost()), first=len(lost_alerts.received()))
    Reconciler(settings).run(everything=True)
    watched.keep(watched.serving("histories", settings, **env))


@contextmanager
def old_alerts(watched: Watched) -> Iterator[None]:
    """More alerts come than can be stored, sent an hour ago; then only new ones, and fewer."""
    alerts = Simulator(SEED + 1, Fields(objects=OBJECTS)).alerts(100_000)
    producer = Producer({"bootstrap.servers": watched.up.kafka})
    lag = "max(sum by (source) (stampede_source_lag_events))"

    def send() -> None:
        (waiting,) = watched.prometheus.query(lag)
        for alert in islice(alerts, AT_ONCE if float(waiting["value"][1]) < BACKLOG else 0):
            producer.produce(TOPICS[alert.survey], alert.body, timestamp=now() - HOUR)
        producer.flush(SECONDS)

    with repeatedly(send, 0.5):
        yield


@contextmanager
def one_function_down(watched: Watched) -> Iterator[None]:
    """A function answers nothing, and more alerts come than may be in flight."""
    alerts = Simulator(SEED + 2, Fields(objects=OBJECTS)).alerts(MORE_THAN_IN_FLIGHT)
    with paused("cutouts")(watched):
        write(alerts, f"kafka://{watched.up.kafka}")
        yield


def now() -> int:
    """The time in milliseconds, as Kafka has it."""
    return int(1000 * time.time())
