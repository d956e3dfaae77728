"""Sends messages to a Kafka topic as they once came: with key, headers and timestamp.

Kafka deletes by timestamp, so `check_retention` asks first whether the topic would keep them.
"""

import time
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

import numpy as np
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, ConfigResource

from stampede.errors import SetupError
from stampede.events.kafka.errors import reason
from stampede.events.kafka.producer import DELIVERY_SECONDS, RESPONSE_SECONDS, Deliveries
from stampede.handlers.replay.messages import Replayed
from stampede.runtime.progress import telling_if_slow
from stampede.telemetry.logs import get_logger

log = get_logger()
NEW_TOPIC_SECONDS = 10.0  # until brokers that make topics have made one
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


def check_retention(target: str, options: dict[str, str], timestamps: np.ndarray) -> None:
    """Check that ``kafka://HOST:PORT/TOPIC`` would keep messages of these timestamps.

    Parameters
    ----------
    options
        More options of librdkafka: TLS, SASL.
    timestamps
        Milliseconds since 1970-01-01 UTC.

    Raises
    ------
    SetupError
        Kafka would delete some of them soon, or does not tell the topic's configuration.
    """
    bootstrap, topic = parse_topic(target)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    try:
        admin = AdminClient({"log_level": 0, **options, "bootstrap.servers": bootstrap})
        _await_topic(admin, topic)
        asked = admin.describe_configs([resource], request_timeout=RESPONSE_SECONDS)[resource]
        config = {name: entry.value for name, entry in asked.result().items()}
    except KafkaException as error:
        raise SetupError(
            f"Kafka at {bootstrap} does not tell the configuration of the topic {topic}: "
            f"{reason(error)}. --ignore-retention sends without asking"
        ) from error
    keeps = int(config["retention.ms"])
    if keeps < 0 or "delete" not in config["cleanup.policy"]:
        return
    if config["message.timestamp.type"] != "CreateTime":
        return
    late = int(np.count_nonzero(timestamps < 1000 * time.time() - keeps))
    if late:
        raise SetupError(
            f"the topic {topic} keeps messages for {keeps / 86_400_000:,.4g} days after their "
            f"timestamps, so Kafka would delete {late:,} of these alerts again: set its "
            "retention.ms=-1 or message.timestamp.type=LogAppendTime; --ignore-retention sends "
            "them all the same"
        )


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

    What `messages` raises is passed on when Kafka has those before.
    """
    bootstrap, topic = parse_topic(target)
    deliveries = Deliveries()

    try:
        producer = Producer({**OPTIONS, **options, "bootstrap.servers": bootstrap})
        with telling_if_slow(log.warning, f"Kafka at {bootstrap} does not answer yet: waiting"):
            producer.list_topics(timeout=RESPONSE_SECONDS)
        try:
            for message in messages:
                timestamp = (
                    {} if message.milliseconds is None else {"timestamp": message.milliseconds}
                )
                deliveries.produce(
                    producer,
                    topic,
                    message.message,
                    lambda taken: on_sent(len(taken)),
                    key=message.key,
                    headers=message.headers,
                    **timestamp,
                )
                if deliveries.failures:
                    break
        finally:  # what Kafka was given before the store failed still goes out
            producer.flush(DELIVERY_SECONDS + 5)
    except KafkaException as error:
        raise SetupError(f"Kafka at {bootstrap}: {reason(error)}") from error
    deliveries.check(bootstrap)
    return deliveries.taken


def _await_topic(admin: AdminClient, topic: str) -> None:
    """Wait for a topic that brokers make when they are asked for it, as sending would make it.

    Raises `KafkaException` if they do not.
    """
    end = time.monotonic() + NEW_TOPIC_SECONDS
    while error := admin.list_topics(topic, timeout=RESPONSE_SECONDS).topics[topic].error:
        if time.monotonic() > end:
            raise KafkaException(error)
        time.sleep(0.1)
