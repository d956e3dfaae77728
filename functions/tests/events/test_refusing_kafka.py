"""What the reader of topics asks of Kafka, and what it says of one that refuses."""

from typing import Any

import pytest

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events.kafka import topics
from stampede.events.kafka.topics import KafkaTopics
from tests.support.events.refusing_kafka import LOGIN, refusing_kafka


def test_a_password_that_is_refused_is_told() -> None:
    """The request itself only runs out of time."""
    with refusing_kafka() as where:
        settings = Settings(kafka=where, kafka_options=LOGIN)
        with KafkaTopics(settings, 2.0) as reader:
            for ask in (reader.names, lambda: reader.watermarks(["alerts"])):
                with pytest.raises(SetupError) as caught:
                    ask()
                assert caught.value.message.startswith(
                    f"Kafka at {where} does not answer: it refuses the credentials: "
                    "check STAMPEDE_KAFKA_KEYS or STAMPEDE_KAFKA_OPTIONS; "
                )


def test_it_asks_in_the_group_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A login may be allowed groups only that begin with its name."""
    asked = []

    class Client:
        def __init__(self, options: dict[str, Any]) -> None:
            asked.append(options["group.id"])
            raise RuntimeError

    monkeypatch.setattr(topics, "Consumer", Client)
    reader = KafkaTopics(Settings(group="night-alerts"))
    for ask in (reader.names, lambda: reader.commits("night-alerts-cutouts", [], {})):
        with pytest.raises(RuntimeError):
            ask()
    assert asked == ["night-alerts", "night-alerts-cutouts"]
