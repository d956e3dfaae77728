"""Functions behind a KafkaSource: the emulation of its contract, real Kafka, real functions."""

import json
import time
from functools import partial

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from stampede.deadletters.dead_letter import letters_of, read_rows
from stampede.store.offsets.coverage import topic_key
from stampede.store.open import open_objects
from stampede.store.runs.schema import CUTOUTS
from stampede.store.tables.table import Table
from stampede_simulator.simulator import Simulator
from tests.support import waiting
from tests.support.events.kafka_source import KafkaSource
from tests.support.events.receiver import PARTITIONS
from tests.support.served import Served, metrics

pytestmark = pytest.mark.integration
eventually = partial(waiting.eventually, seconds=120)
EPOCH = "2026"
KEY = "a-key-of-the-tests-0123456789"


def produce(bootstrap: str, topic: str, bodies: list[bytes]) -> dict[int, int]:
    """Send alerts as Rubin does; returns the end of each partition."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, body in enumerate(bodies):
        sent = str(time.time() * 1000).encode()
        partition = number % PARTITIONS
        producer.produce(topic, body, partition=partition, headers={"producer_timestamp": sent})
        producer.poll(0)
    assert producer.flush(60) == 0
    return {p: len(bodies[p::PARTITIONS]) for p in range(PARTITIONS)}


def committed(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic})
    wanted = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]
    found = {each.partition: each.offset for each in consumer.committed(wanted, 60)}
    consumer.close()
    return found


def source_of(
    kafka, topic: str, sink: Served, letters: Served, most: int = 50, connections: int = 100
) -> KafkaSource:
    """A source with the `delivery` and the `ceOverrides` of the chart."""
    return KafkaSource(
        *(kafka.bootstrap, topic, topic, sink.url, f"{letters.url}/cutouts"),
        max_poll_records=most,
        connections=connections,
        extensions={"topicid": EPOCH, "accesskey": KEY},
    )


def stored(served: Served, topic: str) -> set[tuple[int, int]]:
    """Partition and offset of all that the table `cutouts` covers."""
    coverage = Table(open_objects(served.settings), CUTOUTS).coverage()
    return {
        (partition, offset)
        for partition in range(PARTITIONS)
        for first, end in coverage.intervals(topic_key(topic, EPOCH), partition)
        for offset in range(first, end)
    }


def test_every_alert_is_stored_or_a_dead_letter(kafka, topic, serve) -> None:
    """Also of those that were in flight while the function died, and while it was not there."""
    cutouts, letters = serve("cutouts", EVENT_KEY=KEY), serve("deadletters", EVENT_KEY=KEY)
    bodies = [alert.body for alert in Simulator(71).alerts(400)]
    broken = {7, 133, 301}
    for number in broken:
        bodies[number] = bodies[number][:200]
    ends = produce(kafka.bootstrap, topic, bodies)
    with source_of(kafka, topic, cutouts, letters) as source:
        eventually(lambda: source.finished > 60)
        cutouts.process.kill()
        time.sleep(1)
        cutouts.process.start()
        eventually(lambda: source.finished == len(bodies))
    assert (source.given_up, source.most_in_flight < 100) == (0, True)
    assert source.attempts > len(bodies), "nothing was retried"
    assert committed(kafka.bootstrap, topic) == ends
    places = {(n % PARTITIONS, n // PARTITIONS) for n in range(len(bodies))}
    bad = {(n % PARTITIONS, n // PARTITIONS) for n in broken}
    assert stored(cutouts, topic) == places - bad
    objects = open_objects(letters.settings)
    found = [
        letter
        for info in objects.list("deadletters/")
        for letter in letters_of(read_rows(objects, info), info)
    ]
    assert {letter.position[-2:] for letter in found if letter.position} == bad
    assert {letter.code for letter in found} == {"400"}
    for letter in found:
        assert KEY not in json.dumps(letter.attributes)
        assert "kafkaheaderproducertimestamp" in letter.attributes


@pytest.mark.parametrize(
    ("most", "connections", "least", "greatest"),
    [
        (50, 100, 30, 99),  # Knative's defaults
        (300, 100, 30, 100),  # the connections are as many as before
        (300, 600, 80, 599),  # docs/how-to/kafka-source.md
    ],
)
def test_knative_s_settings_bound_what_a_pack_holds(
    kafka, topic, serve, most: int, connections: int, least: int, greatest: int
) -> None:
    cutouts, letters = serve("cutouts", EVENT_KEY=KEY), serve("deadletters", EVENT_KEY=KEY)
    bodies = [alert.body for alert in Simulator(72).alerts(1800)]
    produce(kafka.bootstrap, topic, bodies)
    with source_of(kafka, topic, cutouts, letters, most, connections) as source:
        eventually(lambda: source.finished == len(bodies))
    lines = metrics(cutouts).decode().splitlines()
    (flushes,) = (line for line in lines if line.startswith("stampede_flushes_total{"))
    alerts = len(bodies) / float(flushes.split()[-1])
    print(f"max.poll.records={most}, maxPoolSize={connections}: {alerts:.0f} alerts per pack")
    assert len(stored(cutouts, topic)) == len(bodies)
    assert source.most_in_flight < 2 * most
    assert least <= alerts <= greatest
