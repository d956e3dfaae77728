"""A release whose Broker is Knative's Kafka Broker, which keeps its events while its pods die."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from e2e.cluster.built import kafka_broker
from e2e.cluster.existing import ExistingCluster
from e2e.commands import until
from e2e.http import found, get
from e2e.on_cluster.kubernetes import Cluster
from e2e.on_cluster.load import (
    assert_it_is_read,
    lacking_thumbnails,
    simulate,
    simulated_alerts,
)
from e2e.on_cluster.release import INSTALL_SECONDS, Release

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

NAME = "kafka-broker"  # the release, its namespace, its Broker and its buckets
TOPIC = f"knative-broker-{NAME}-{NAME}"  # of the Broker, as its controller names it
COUNT = 200  # alerts of each seed
SEED, SEED_KILLED = 2130, 2131
RATE = 4  # alerts per second while the pods of the Broker die
# A source is ready once Kafka has its topics.
MAKE_TOPICS = f"""
from stampede_local.kafka import make_topics
make_topics("localhost:9092", ["{NAME}-lsst", "{NAME}-ztf"])
"""
# Print how many events the Broker's topic has taken; nothing if there is no such topic.
TAKEN = f"""
from confluent_kafka import Consumer, TopicPartition
kafka = Consumer({{"bootstrap.servers": "localhost:9092", "group.id": "looks-on"}})
if found := kafka.list_topics(timeout=30).topics.get("{TOPIC}"):
    ends = (kafka.get_watermark_offsets(TopicPartition("{TOPIC}", n)) for n in found.partitions)
    print(sum(end for _, end in ends))
"""
COUNT_PACKS = """
from stampede.config.settings import Settings
from stampede.store.open import open_objects
print(sum(1 for _ in open_objects(Settings()).list("packs/")))
"""


def in_kafka(cluster: Cluster, code: str) -> str:
    """Run Python code in the pod of the site's Kafka; its standard output."""
    line = ("--namespace", "site", "exec", "statefulset/kafka", "--container", "kafka", "--")
    return cluster.kubectl(*line, "python3", "-c", code).output


def taken(cluster: Cluster) -> int:
    """How many events the Broker's topic has taken."""
    return int(in_kafka(cluster, TAKEN))


def kill_broker(cluster: Cluster) -> None:
    """Kill all pods that take the Broker's events and that send them on, without a signal."""
    now = ("--grace-period=0", "--force", "--wait=false")
    for app in (kafka_broker.RECEIVER, kafka_broker.DISPATCHER):
        until(lambda app=app: pods(cluster, app), 120, 0.5)  # the one before was killed too
        names = pods(cluster, app)
        cluster.kubectl("--namespace", kafka_broker.NAMESPACE, "delete", "pod", *names, *now)


def pods(cluster: Cluster, app: str) -> list[str]:
    """Names of a part's pods."""
    listed = cluster.get("pods", kafka_broker.NAMESPACE, "--selector", f"app={app}")
    return [pod["metadata"]["name"] for pod in listed]


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Iterator[None]:
    """The Kafka Broker beside Knative's own, while these tests use it."""
    if isinstance(cluster.backend, ExistingCluster):
        pytest.skip("the images are for the nodes that these tests start")
    try:
        kafka_broker.up(cluster.backend)
        yield
    finally:
        kafka_broker.down(cluster.backend)


@pytest.fixture(scope="module")
def kept(cluster: Cluster, installed: None) -> Iterator[Release]:
    """A release with this Broker, and without `reconcile`."""
    in_kafka(cluster, MAKE_TOPICS)
    release = Release(cluster, NAME, "values-kafka-broker.yaml")
    cluster.kubectl("create", "namespace", NAME)
    try:
        release.install()
        yield release
    finally:
        release.uninstall("--no-hooks", "--ignore-not-found", check=False)
        cluster.kubectl("delete", "namespace", NAME, seconds=INSTALL_SECONDS)


def assert_all_events_came(release: Release, seed: int) -> None:
    """All alerts are stored, every pack has its thumbnails, and the second site has all objects.

    By events alone: nothing sends them again.
    """
    release.wait_until_stored()
    for alert in simulated_alerts(seed, COUNT)[1]:
        if all(alert.fits.values()):
            url = f"{release.url('read')}/v1/alerts/{alert.alert_id}/thumbnail"
            url += f"?survey={alert.survey}"
            until(partial(found, url), 120, 1)
            assert get(url).startswith(b"\x89PNG")
    until(lambda: not lacking_thumbnails(release), 60, 3)
    release.wait_until_stored("--site", "replica")
    assert_it_is_read(release, seed, COUNT)


def test_thumbnails_and_copies_come_by_way_of_kafka(cluster: Cluster, kept: Release) -> None:
    functions = {each["metadata"]["name"] for each in kept.get("services.serving.knative.dev")}
    assert f"{NAME}-thumbnails" in functions
    assert f"{NAME}-reconcile" not in functions
    (broker,) = kept.get("brokers")
    assert "kafka-broker-ingress" in broker["status"]["address"]["url"]
    events, packs = taken(cluster), int(kept.python(COUNT_PACKS))
    simulate(kept, SEED, COUNT)
    assert_all_events_came(kept, SEED)
    new_packs = int(kept.python(COUNT_PACKS)) - packs
    assert new_packs
    assert taken(cluster) - events >= new_packs


def test_no_event_is_lost_when_the_pods_of_the_broker_die(cluster: Cluster, kept: Release) -> None:
    """What it has taken comes from Kafka: the sender of an event forgets it once it is taken."""
    before, deaths = taken(cluster), 0
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(simulate, kept, SEED_KILLED, COUNT, RATE)
        while not sending.done():
            if taken(cluster) > before:
                kill_broker(cluster)
                before, deaths = taken(cluster), deaths + 1
        sending.result()
    assert deaths
    assert_all_events_came(kept, SEED_KILLED)


def test_uninstalling_leaves_nothing(cluster: Cluster, kept: Release) -> None:
    """Neither in the namespace nor in Kafka: the Broker's topic goes, with its events.

    This Kafka makes a topic anew that a client asks for, here the Broker's dispatcher as it ends.
    """
    assert taken(cluster)
    kept.uninstall()
    until(lambda: not kept.remaining(), 120, 2)
    until(lambda: not int(in_kafka(cluster, TAKEN) or 0), 60, 2)
    assert not kept.get("consumergroups.internal.kafka.eventing.knative.dev")
