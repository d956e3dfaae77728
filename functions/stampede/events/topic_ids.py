"""The ids that Kafka gives to topics: a topic that is made anew under its name has another id."""

from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from stampede.events.kafka_login import KafkaLogin
from stampede.logs import get_logger
from stampede.settings import Settings

log = get_logger()

ANSWER_SECONDS = 15.0
UNKNOWN = "AAAAAAAAAAAAAAAAAAAAAA"  # 0: the broker is too old to know topic ids


def commit_note(topic_id: str | None) -> str:
    """What a commit says of its topic, so that `committed_elsewhere` recognises it."""
    return f"topicid={topic_id}" if topic_id else ""


def committed_elsewhere(
    consumer: Consumer, partitions: list[TopicPartition], topic_ids: Mapping[str, str]
) -> list[TopicPartition]:
    """Those of the partitions whose group has committed an offset of another topic of this name.

    Kafka deletes committed offsets with their topic, but a mirrored or restored cluster may have
    them still.
    """
    try:
        committed = consumer.committed(partitions, ANSWER_SECONDS)
    except KafkaException as error:
        log.warning("committed offsets are not known", reason=error.args[0].str())
        return []
    notes = {(each.topic, each.partition): each.metadata or "" for each in committed}
    return [
        each
        for each in partitions
        if (note := notes.get((each.topic, each.partition), "")).startswith("topicid=")
        and each.topic in topic_ids
        and note != commit_note(topic_ids[each.topic])
    ]


class TopicIds:
    """Asks Kafka for topic ids, with a connection of its own. Not safe for threads.

    A topic whose id cannot be had is left out of every answer, and the reason is logged.
    """

    def __init__(self, settings: Settings) -> None:
        self._login = KafkaLogin(settings)
        self._options: dict[str, str | int | float | bool] = {
            "bootstrap.servers": settings.kafka,
            **self._login.options,
            "log_level": 0,  # otherwise it warns of the options that are a consumer's
        }
        self._admin: AdminClient | None = None
        self._pending: dict[str, Future[Any]] = {}
        self.missing: frozenset[str] = frozenset()
        """Of the topics that were last asked for, those that Kafka does not have."""

    def ask(self, topics: Collection[str]) -> None:
        """Begin a request for these topics, unless one is under way; `answer` has the result."""
        if self._pending or not topics:
            return
        try:
            self._admin = self._admin or AdminClient(self._options)
            self._login.renew(self._admin)
            self._pending = self._admin.describe_topics(
                TopicCollection(sorted(topics)), request_timeout=ANSWER_SECONDS
            )
        except (KafkaException, ValueError) as error:
            log.warning("topic ids are not known", reason=str(error))

    def answer(self) -> dict[str, str]:
        """The ids of the topics that `ask` asked for, by name; empty until all have come."""
        if not all(future.done() for future in self._pending.values()):
            return {}
        if not self._pending:
            return {}
        pending, self._pending = self._pending, {}
        ids, missing = {}, set()
        for topic, future in pending.items():
            try:
                # The client writes standard base64; Kafka's own tools write the URL-safe form.
                topic_id = str(future.result().topic_id).translate(str.maketrans("+/", "-_"))
            except KafkaException as error:
                log.warning("topic id is not known", topic=topic, reason=error.args[0].str())
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    missing.add(topic)
                continue
            if topic_id != UNKNOWN:
                ids[topic] = topic_id
        self.missing = frozenset(missing)
        return ids

    def wait(self, topics: Collection[str], seconds: float = ANSWER_SECONDS) -> dict[str, str]:
        """The ids of these topics, by name, at the latest after that time."""
        self._pending = {}
        self.ask(topics)
        wait(self._pending.values(), seconds)
        return self.answer()
