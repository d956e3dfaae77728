"""The environment variables that each process of a system gets."""

import json
from collections.abc import Mapping

from stampede.events.triggers import read_triggers
from stampede.functions.apps import APPS
from stampede.settings import Settings

# Kafka gives the partitions of a killed source to another source after this time; default 45 s.
_CONSUMER_OPTIONS = {"session.timeout.ms": "10000"}

Environment = dict[str, str]


def stores(settings: Settings) -> dict[str, str]:
    """The stores of both sites and the keys for them, by the name of the setting."""
    return {
        "store": settings.store,
        "access_key": settings.access_key,
        "secret_key": settings.secret_key.get_secret_value(),
        "replica": settings.replica,
        "replica_access_key": settings.replica_access_key,
        "replica_secret_key": settings.replica_secret_key.get_secret_value(),
    }


def of_every_process(settings: Settings) -> Environment:
    """For every process: the stores, the keys for them, and the address to listen on."""
    variables = {f"STAMPEDE_{name.upper()}": value for name, value in stores(settings).items()}
    return variables | {"STAMPEDE_HOST": "127.0.0.1"}


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
