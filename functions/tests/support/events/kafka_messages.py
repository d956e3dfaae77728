"""Messages to and from a Kafka topic."""

import time

from confluent_kafka import Consumer, Producer, TopicPartition


def produce(bootstrap: str, topic: str, values: list[bytes], partitions: int = 1) -> None:
    """Send values to so many partitions in turn."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
    assert producer.flush(150) == 0


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> dict[int, int]:
    """The offsets that a group has committed, per partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        wanted = [TopicPartition(topic, partition) for partition in range(partitions)]
        return {each.partition: max(0, each.offset) for each in consumer.committed(wanted, 60)}
    finally:
        consumer.close()


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
