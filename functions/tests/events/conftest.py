"""Sources as processes, and the Kafka that they read."""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer

from stampede_local.kafka import LocalKafka
from stampede_local.ports import free_port
from stampede_local.process import Process
from tests.support.events import kafka_messages
from tests.support.events.receiver import PARTITIONS, Place, Receiver


@pytest.fixture
def start(kafka: LocalKafka, topic: str, tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts a source of the topic, after some code in its process; stops all at the end."""
    started: list[Process] = []

    def go(sink: Receiver, before: str = "", **env: str) -> Process:
        port = free_port()
        code = f"{before}\nfrom stampede.cli.main import main; main()"
        source = Process(
            f"source {len(started)}",
            [sys.executable, "-c", code, "serve", "source"],
            tmp_path / f"source-{len(started)}.log",
            {
                "K_SINK": sink.url,
                "STAMPEDE_KAFKA": kafka.bootstrap,
                "STAMPEDE_TOPICS": topic,
                "STAMPEDE_GROUP": topic,
                "STAMPEDE_PORT": str(port),
                "STAMPEDE_BACKOFF_SECONDS": "0.05",
                # The least that Kafka allows: Kafka notices a killed source after 6 s.
                "STAMPEDE_KAFKA_OPTIONS": '{"session.timeout.ms": "6000"}',
            }
            | env,
        )
        started.append(source)
        source.start()
        return source

    yield go
    for source in started:
        source.stop()
        print(source.tail(40))


@pytest.fixture
def produce(kafka: LocalKafka, topic: str) -> Callable[..., dict[Place, bytes]]:
    """Produces alerts to all partitions in turn; returns each value by partition and offset."""

    def go(count: int, size: int = 200, **options: Any) -> dict[Place, bytes]:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 5})
        made: dict[Place, bytes] = {}

        def note(error: KafkaError | None, message: Message) -> None:
            assert error is None
            made[message.partition(), message.offset()] = message.value()

        for i in range(count):
            value = f"alert {i} ".encode().ljust(size, b".")
            producer.produce(topic, value, partition=i % PARTITIONS, on_delivery=note, **options)
            if i % 1000 == 999:
                producer.poll(0.1)
        assert producer.flush(150) == 0
        return made

    return go


@pytest.fixture
def committed(kafka: LocalKafka, topic: str) -> Callable[[], dict[int, int]]:
    """The offsets that the group has committed, per partition."""
    return partial(kafka_messages.committed, kafka.bootstrap, topic, topic, PARTITIONS)
