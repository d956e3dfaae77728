"""The ids that Kafka gives to topics: a topic that is made anew under its name has another id."""

from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from stampede.config.settings import Settings
from stampede.errors import SetupError
from stampede.events.kafka.login import KafkaLogin
from stampede.events.kafka.topic_names import admin_client
from stampede.telemetry.logs import get_logger

log = get_logger()

RESPONSE_SECONDS = 15.0
REQUEST_SECONDS = 5.0  # then it is asked again, by a new client
NONE = ""  # in place of the id where the broker is too old to give topics ids
_ZERO = "AAAAAAAAAAAAAAAAAAAAAA"  # what such a broker says
_NOTE = "topicid="
_END = ";"


def commit_note(topic_id: str | None, behind: Mapping[str, int] | None = None) -> str:
    """What a commit says of its topic, and of tables that lack more than its offset says.

    Kafka keeps up to 4,096 bytes of it (``offset.metadata.max.bytes``).
    """
    parts = [f"{_NOTE}{topic_id}"] if topic_id else []
    parts += [f"{table}={offset}" for table, offset in sorted((behind or {}).items())]
    return _END.join(parts)


def read_note(note: str | None) -> tuple[str | None, dict[str, int]]:
    """The topic's id in the note of a commit, and the offsets of tables that lack more.

    What other tools note is ignored.
    """
    topic_id, behind = None, {}
    for part in (note or "").split(_END):
        name, found, text = part.partition("=")
        if f"{name}{found}" == _NOTE:
            topic_id = text
        elif found and text.isascii() and text.isdigit():
            behind[name] = int(text)
    return topic_id, behind


def of_another_topic(note: str | None, topic_id: str | None) -> bool:
    """Whether the note of a commit says that its offset is of a topic with another id."""
    noted, _ = read_note(note)
    return bool(noted and topic_id and noted != topic_id)


class Answer(NamedTuple):
    """What Kafka says of topics.

    `ids` are those of the topics that it has, by name: `NONE` if it knows no ids. `missing` are the
    names that no topic has. Of other topics it could not be asked.
    """

    ids: Mapping[str, str]
    missing: frozenset[str] = frozenset()

    def says_gone(self, topic: str, topic_id: str | None) -> bool:
        """Whether the topic with this id is no more; False if it is not known."""
        return topic in self.missing or self.ids.get(topic, topic_id) != topic_id


class TopicIds:
    """Asks Kafka for topic ids, with a connection of its own. Not safe for threads.

    Why an id cannot be had is logged once.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._login = KafkaLogin(settings)
        self._admin: AdminClient | None = None
        self._pending: dict[str, Future[Any]] = {}
        self._reasons: dict[str, str] = {}

    @property
    def asking(self) -> bool:
        """Whether `ask` has begun a request whose response was not taken yet."""
        return bool(self._pending)

    def ask(self, topics: Collection[str]) -> bool:
        """Begin a request for these topics, unless one is under way; return whether it did."""
        if self._pending or not topics:
            return False
        try:
            self._admin = self._admin or self._new_client()
            self._login.renew(self._admin)
            self._pending = self._admin.describe_topics(
                TopicCollection(sorted(topics)), request_timeout=REQUEST_SECONDS
            )
        except (KafkaException, ValueError, SetupError) as error:
            self._cannot(", ".join(topics), str(error))
        return bool(self._pending)

    def answer(self, seconds: float = 0) -> Answer | None:
        """The response to `ask`, if it comes within so many seconds; None if it does not."""
        if not self._pending or wait(self._pending.values(), seconds).not_done:
            return None
        pending, self._pending = self._pending, {}
        ids, missing = {}, set()
        for topic, future in pending.items():
            try:
                # The client writes standard base64; Kafka's own tools write the URL-safe form.
                topic_id = str(future.result().topic_id).translate(str.maketrans("+/", "-_"))
            except KafkaException as error:
                self._cannot(topic, error.args[0].str())
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    missing.add(topic)
                elif error.args[0].code() < 0:  # Kafka did not answer
                    self._admin = None  # a client may never find its broker again
                continue
            self._reasons.pop(topic, None)
            ids[topic] = NONE if topic_id == _ZERO else topic_id
        return Answer(ids, frozenset(missing))

    def wait(self, topics: Collection[str], seconds: float = RESPONSE_SECONDS) -> Answer:
        """What Kafka says of these topics within that time; nothing if it does not answer.

        Replaces a request that is under way.
        """
        self._pending = {}
        self.ask(topics)
        return self.answer(seconds) or Answer({})

    def _new_client(self) -> AdminClient:
        self._login = KafkaLogin(self._settings)
        return admin_client(self._settings, self._login)

    def _cannot(self, topic: str, reason: str) -> None:
        if self._reasons.get(topic) != reason:
            self._reasons[topic] = reason
            log.warning("topic id is not known", topic=topic, reason=reason)
