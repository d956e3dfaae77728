"""Which topics Kafka has: those of families are found so, also while a source runs.

A source subscribes to the names that it finds, never to a pattern: Kafka's client would look at
each topic that matches, expired nights too, and their errors would hold up the one that is alive.
"""

import threading
from collections import Counter
from contextlib import suppress

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from prometheus_client import Gauge

from stampede.config.settings import Settings
from stampede.config.topics import Topics
from stampede.errors import SetupError
from stampede.events.kafka.login import KafkaLogin
from stampede.telemetry import source_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

# A topic that is new is read within 10 s: this, and two rebalances of 3 s at most.
LIST_SECONDS = 3.0
QUIET_SECONDS = 15.0  # without families the list says only which topics nobody reads
RESPONSE_SECONDS = 10.0


def admin_client(settings: Settings, login: KafkaLogin) -> AdminClient:
    """A client that asks Kafka of topics. Raises `KafkaException`, ValueError."""
    options: dict[str, str | int | float | bool] = {
        "bootstrap.servers": settings.kafka,
        **login.options,
        "log_level": 0,  # otherwise it warns of the options that are a consumer's
    }
    return AdminClient(options)


class TopicNames:
    """Lists the topics of a Kafka again and again, in a thread of its own: a list may take long.

    Attributes
    ----------
    existing
        All topics, as last listed; None before that.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        others = Topics.parse(settings.other_topics)
        self._topics = Topics.parse(settings.topics).beside(others)
        self._login = KafkaLogin(settings)
        self._stopped = threading.Event()
        self._unread: dict[str, str] = {}
        self._silent: dict[str, str] = {}
        self.existing: frozenset[str] | None = None

    def start(self) -> None:
        """Begin to list."""
        threading.Thread(target=self._list, name="topic names", daemon=True).start()

    def stop(self) -> None:
        """List no more."""
        self._stopped.set()

    def _list(self) -> None:
        admin: AdminClient | None = None
        seconds = LIST_SECONDS if self._topics.families else QUIET_SECONDS
        while not self._stopped.is_set():
            try:
                admin = admin or admin_client(self._settings, self._login)
                self._login.renew(admin)
                topics = frozenset(admin.list_topics(timeout=RESPONSE_SECONDS).topics)
            except (KafkaException, ValueError, SetupError) as error:
                log.warning("topics cannot be listed", reason=str(error))
                admin = None  # a client may never find its broker again
            else:
                self.note(topics)
            self._stopped.wait(seconds)

    def note(self, topics: frozenset[str]) -> None:
        """Take the names of all topics, and show which of them nobody reads."""
        self.existing = topics
        unread = dict(self._topics.unread(self.existing))
        for topic in sorted(unread.keys() - self._unread.keys()):
            log.warning("topic is not read", topic=topic, family=unread[topic])
        silent = dict(self._topics.silent(self.existing))
        for family in sorted(silent.keys() - self._silent.keys()):
            log.warning("no topic for some nights", family=family, other=silent[family])
        _show(source_metrics.SOURCE_UNREAD_TOPICS, [*unread.values()], [*self._unread.values()])
        _show(source_metrics.SOURCE_SILENT_FAMILIES, [*silent], [*self._silent])
        self._unread, self._silent = unread, silent


def _show(gauge: Gauge, families: list[str], before: list[str]) -> None:
    """Set a gauge to how often each family occurs, and remove those that did before."""
    count = Counter(families)
    for family in set(before) - count.keys():
        with suppress(KeyError):
            gauge.remove(family)
    for family, number in count.items():
        gauge.labels(family).set(number)
