"""The environment variables that each process of a system gets."""

import json
from collections.abc import Mapping
from pathlib import Path

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events import table_urls
from stampede.events.broker.triggers import read_triggers
from stampede.handlers.apps import APPS

# Kafka gives the partitions of a killed source to another source after this time; default 45 s.
_CONSUMER_OPTIONS = {"session.timeout.ms": "10000"}

TRIGGERS = "triggers.yaml"
"""File among the data with all Triggers, if the user has some."""
NO_STORE = {"source", "broker", "notifications"}
"""Functions that pass events on and never use a store."""
BOTH_SITES = {"replicate", "reconcile", "scrub"}
"""Functions that use the second site too."""

Environment = dict[str, str]


def stores(settings: Settings) -> dict[str, str]:
    """The stores of both sites and the keys for them, by the name of the setting."""
    return {
        "store": settings.store,
        "access_key": settings.access_key,
        "secret_key": settings.secret_key.get_secret_value(),
        "keys": settings.keys,
        "replica": settings.replica,
        "replica_access_key": settings.replica_access_key,
        "replica_secret_key": settings.replica_secret_key.get_secret_value(),
        "replica_keys": settings.replica_keys,
    }


def of_process(function: str, settings: Settings) -> Environment:
    """For a process that serves `function`: where it listens, and the stores that it uses.

    It gets the keys of no other store: whoever takes over the broker cannot read the bucket. What
    `up` itself was started with (STAMPEDE_SECRET_KEY, for example) is replaced, not inherited.
    """
    used = stores(settings)
    if function in NO_STORE:
        used |= {"access_key": "", "secret_key": "", "keys": ""}
    if function not in BOTH_SITES:
        names = ("replica", "replica_access_key", "replica_secret_key", "replica_keys")
        used |= dict.fromkeys(names, "")
    variables = {f"STAMPEDE_{name.upper()}": value for name, value in used.items()}
    variables["STAMPEDE_PROOF_KEY"] = settings.proof_key if function == "reconcile" else ""
    key = "" if function == "read" else settings.event_key.get_secret_value()
    variables |= {"STAMPEDE_EVENT_KEY": key, "STAMPEDE_SECOND_EVENT_KEY": ""}
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        variables[f"AWS_{name}"] = ""
    if function == "read" and settings.topics:
        variables |= of_ledger(settings)
    return variables | {"STAMPEDE_HOST": "127.0.0.1"}


def of_ledger(settings: Settings) -> Environment:
    """For `read`, which asks Kafka what is in flight."""
    return {
        "STAMPEDE_KAFKA": settings.kafka,
        "STAMPEDE_TOPICS": settings.topics,
        "STAMPEDE_GROUP": settings.group,
        "STAMPEDE_KAFKA_OPTIONS": json.dumps(settings.kafka_options),
    }


def of_input(
    settings: Settings, urls: Mapping[str, str], name: str = "", table: str = ""
) -> Environment:
    """For a function that takes its alerts from Kafka: for both tables, or `name` for `table`."""
    return {
        "STAMPEDE_DEAD_LETTER_SINK": urls["deadletters"] + (table and f"/{table}"),
        "STAMPEDE_KAFKA": settings.kafka,
        "STAMPEDE_TOPICS": settings.topics,
        "STAMPEDE_GROUP": settings.group + (name and f"-{name}"),
        "STAMPEDE_KAFKA_OPTIONS": json.dumps(_CONSUMER_OPTIONS | settings.kafka_options),
    }


def of_source(settings: Settings, urls: Mapping[str, str]) -> Environment:
    """For the source, which sends each alert to both functions."""
    return of_input(settings, urls) | {"STAMPEDE_SINKS": json.dumps(table_urls(urls))}


def triggers_file(settings: Settings, own: Path | None, data: Path) -> Path:
    """The file of all Triggers: those of the settings, and those of the user's `own` functions.

    Raises
    ------
    SetupError
        One of the user's has the name of another, or a subscriber without a URL.
    """
    if own is None:
        return settings.triggers
    names = {trigger.metadata.name for trigger in read_triggers(settings.triggers)}
    for trigger in read_triggers(own):
        name = trigger.metadata.name
        if name in names:
            raise SetupError(f"{own}: another Trigger has the name {name}: give it one of its own")
        if trigger.spec.subscriber.url(settings.subscribers) is None:
            raise SetupError(
                f"{own}: Trigger {name}: its subscriber has no URL here: give it as `uri`, for "
                "example http://127.0.0.1:9000/"
            )
        names.add(name)
    file = data / TRIGGERS
    file.write_text("\n---\n".join(each.read_text() for each in (settings.triggers, own)))
    return file


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
