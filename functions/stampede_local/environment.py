"""The environment variables that each process of a system gets."""

import json
from collections.abc import Mapping

from stampede.events.triggers import read_triggers
from stampede.functions.apps import APPS
from stampede.settings import Settings

# Kafka gives the partitions of a killed source to another source after this time; default 45 s.
_CONSUMER_OPTIONS = {"session.timeout.ms": "10000"}

Environment = dict[str, str]


def of_every_process(settings: Settings) -> Environment:
    """For every process: the stores, the keys for them, and the address to listen on."""
    return {
        "STAMPEDE_STORE": settings.store,
        "STAMPEDE_ACCESS_KEY": settings.access_key,
        "STAMPEDE_SECRET_KEY": settings.secret_key.get_secret_value(),
        "STAMPEDE_REPLICA": settings.replica,
        "STAMPEDE_REPLICA_ACCESS_KEY": settings.replica_access_key,
        "STAMPEDE_REPLICA_SECRET_KEY": settings.replica_secret_key.get_secret_value(),
        "STAMPEDE_HOST": "127.0.0.1",
    }


def of_source(settings: Settings, urls: Mapping[str, str], name: str, table: str) -> Environment:
    """For the source that sends Kafka's alerts to the function `name`, which fills `table`."""
    return {
        "K_SINK": urls[name],
        "STAMPEDE_DEAD_LETTER_SINK": f"{urls['deadletters']}/{table}",
        "STAMPEDE_KAFKA": settings.kafka,
        "STAMPEDE_TOPICS": settings.topics,
        "STAMPEDE_GROUP": f"{settings.group}-{name}",
        "STAMPEDE_KAFKA_OPTIONS": json.dumps(_CONSUMER_OPTIONS | settings.kafka_options),
    }


def subscribers_of(settings: Settings) -> dict[str, str]:
    """The functions that subscribe to the broker, by the name of the subscriber in a Trigger.

    Only functions that exist here, and `replicate` only if there is a second site.
    """
    functions = {}
    for trigger in read_triggers(settings.triggers):
        if ref := trigger.spec.subscriber.ref:
            function = ref.name.removeprefix("stampede-")
            if function in APPS and (function != "replicate" or settings.replica):
                functions[ref.name] = function
    return functions
