"""Sends messages to a Kafka topic as they once came: with key, headers and timestamp."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

from confluent_kafka import KafkaException, Message, Producer

from stampede.errors import SetupError
from stampede.functions.replay import Replayed

ANSWER_SECONDS = 30.0  # without an answer for this long, there is no Kafka
DELIVERY_SECONDS = 300  # a Kafka that was there may be restarting: wait for it
OPTIONS = {
    "enable.idempotence": True,  # a retry neither repeats a message nor changes the order
    "partitioner": "murmur2_random",  # of a key, as Kafka's own clients choose it
    "message.max.bytes": 64 << 20,
    "message.timeout.ms": DELIVERY_SECONDS * 1000,
    "queue.buffering.max.kbytes": 128 << 10,
    "linger.ms": 5,
    "log_level": 0,  # the delivery reports have the failures
}


def parse_topic(target: str) -> tuple[str, str]:
    """Bootstrap servers and topic of ``kafka://HOST:PORT/TOPIC``. Raises `SetupError`."""
    parts = urlsplit(target)
    topic = parts.path.strip("/")
    if parts.scheme != "kafka" or not parts.netloc or not topic or "/" in topic or parts.query:
        raise SetupError(f"cannot send to {target!r}: give kafka://HOST:PORT/TOPIC")
    return parts.netloc, topic


def send(
    messages: Iterable[Replayed],
    target: str,
    options: dict[str, str],
    on_sent: Callable[[int], None] = lambda size: None,
) -> int:
    """Send messages to ``kafka://HOST:PORT/TOPIC`` and wait until Kafka has all.

    Parameters
    ----------
    options
        More options of librdkafka: TLS, SASL.
    on_sent
        Called with the bytes of each message that Kafka has taken.

    Returns
    -------
    How many Kafka has taken.

    Raises
    ------
    SetupError
        Kafka did not take all of them. Those it took stay.
    """
    bootstrap, topic = parse_topic(target)
    sent, failures = 0, Counter[str]()

    def delivered(error: object, message: Message) -> None:
        nonlocal sent
        if error is not None:
            failures[str(error)] += 1
            return
        sent += 1
        on_sent(len(message))

    try:
        producer = Producer({**OPTIONS, **options, "bootstrap.servers": bootstrap})
        producer.list_topics(timeout=ANSWER_SECONDS)
        for message in messages:
            _produce(producer, topic, message, delivered)
            if failures:
                break
        producer.flush(DELIVERY_SECONDS + 5)
    except KafkaException as error:
        raise SetupError(f"Kafka at {bootstrap}: {error}") from error
    if failures:
        reason = failures.most_common(1)[0][0]
        raise SetupError(f"Kafka at {bootstrap} took {sent:,} alerts, then failed: {reason}")
    return sent


def _produce(
    producer: Producer, topic: str, message: Replayed, delivered: Callable[[Any, Message], None]
) -> None:
    options: dict[str, Any] = {"headers": message.headers, "on_delivery": delivered}
    if message.milliseconds is not None:
        options["timestamp"] = message.milliseconds
    while True:
        try:
            producer.produce(topic, message.message, message.key, **options)
        except BufferError:  # the queue is full: let Kafka take a part of it
            producer.poll(0.1)
        else:
            producer.poll(0)
            return
