"""Checks of a store and a Kafka that a user names, before anything is started."""

import uuid
from collections.abc import Collection

from confluent_kafka import Consumer, KafkaError, KafkaException

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.errors import SetupError
from stampede.events.kafka.errors import reason
from stampede.events.kafka.login import KafkaLogin
from stampede.runtime.progress import Progress, telling_if_slow
from stampede.store.objects.object_store import Objects

RESPONSE_SECONDS = 10.0


def require_kafka(settings: Settings, topics: Collection[str], progress: Progress) -> None:
    """Check that the Kafka of the settings answers, and report the topics that it lacks.

    Raises `SetupError` if it does not answer.
    """
    errors: list[KafkaError] = []
    options = {
        "bootstrap.servers": settings.kafka,
        "group.id": settings.group,
        **KafkaLogin(settings).options,
        "log_level": 0,  # otherwise librdkafka prints every refused connection on stderr
        "error_cb": errors.append,
    }
    where = f"Kafka at {settings.kafka}"
    try:
        client = Consumer(options)
    except (KafkaException, ValueError) as error:
        why = reason(error) if isinstance(error, KafkaException) else str(error)
        raise SetupError(f"{where}: wrong options: {why}") from None
    try:
        with telling_if_slow(progress, f"{where} does not answer yet: waiting"):
            known = client.list_topics(timeout=RESPONSE_SECONDS).topics
    except KafkaException as error:
        client.poll(0)  # calls `error_cb`, which knows more than that time ran out
        why = reason(errors[0] if errors else error)
        raise SetupError(f"{where}: {why}") from None
    finally:
        client.close()
    named = Topics.parse(",".join(topics))
    for topic in named.names:
        if topic not in known:
            progress(f"{where} has no topic {topic}, or does not show it: waiting for it")
    for family in named.families:
        if not any(family.place(topic) is not None for topic in known):
            progress(f"{where} has no topic of {family.template} yet: waiting for one")


def require_writable(objects: Objects) -> None:
    """Write an object, read it and delete it. Raises `StoreDown` if the store does not allow it."""
    key = f"check-{uuid.uuid4().hex}"
    objects.put(key, b"stampede")
    objects.get(key)
    objects.delete(key)
