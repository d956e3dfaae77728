"""Messages to and from a Kafka topic."""

import time

from confluent_kafka import Consumer, Producer


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    """Send values to partition 0."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(150) == 0


def consume(bootstrap: str, topic: str, count: int) -> list[bytes]:
    """The first `count` values of a topic, in order of arrival; fewer after 150 s."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "test", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        deadline, found = time.monotonic() + 150, []
        while len(found) < count and time.monotonic() < deadline:
            found += [message.value() for message in consumer.consume(count, timeout=1)]
        return found
    finally:
        consumer.close()
