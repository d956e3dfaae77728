"""A topic that is deleted and made anew, again and again, while alerts are sent to it."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from confluent_kafka import KafkaException, Message, Producer, TopicCollection
from confluent_kafka.admin import AdminClient, NewTopic

from stampede.store.offsets.coverage import topic_key

Contents = dict[tuple[str, int], list[int]]
"""The alert at each offset, by the topic's key and the partition."""

RESPONSE_SECONDS = 60.0
MOST_PARTITIONS = 6


class Recreations:
    """Makes a topic anew while a thread sends alerts to it; knows what each topic of the name had.

    No alert is sent during the deletion or the creation: only so it is known which topic has it.

    Parameters
    ----------
    bootstrap
        Kafka's address.
    topic
        A name that no topic has yet.
    make_alert
        The alert of a number.
    seed
        Of the waits, of the numbers of partitions, and of the rate of alerts.

    Attributes
    ----------
    contents
        What was sent.
    keys
        The key of each topic of the name, in order.
    """

    def __init__(
        self, bootstrap: str, topic: str, make_alert: Callable[[int], bytes], seed: int
    ) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._bootstrap, self._topic, self._make = bootstrap, topic, make_alert
        self._chance, self._rate = random.Random(seed), random.Random(seed)
        self._numbers = iter(range(1, 1 << 40))
        self._whole = threading.Lock()  # held while the topic is changed, and while alerts are sent
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._send_until_stopped)
        self._partitions = 0
        self.contents: Contents = {}
        self.keys: list[str] = []

    def __enter__(self) -> "Recreations":
        self._create()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def make_anew(self, seconds: tuple[float, float], gap: tuple[float, float]) -> str:
        """Let the topic live for a while, delete it, and make it anew after a gap; say how."""
        lived = self._chance.uniform(*seconds)
        time.sleep(lived)
        waited = self._chance.uniform(*gap)
        with self._whole:
            self._admin.delete_topics([self._topic])[self._topic].result(RESPONSE_SECONDS)
            time.sleep(waited)
            self._create()
        count = sum(len(c) for (key, _), c in self.contents.items() if key == self.keys[-2])
        return (
            f"lived {lived:.1f} s, {count} alerts; gap {waited:.1f} s; "
            f"now {self._partitions} partitions"
        )

    def _create(self) -> None:
        self._partitions = self._chance.randint(1, MOST_PARTITIONS)
        deadline = time.monotonic() + RESPONSE_SECONDS
        while True:
            with suppress(KafkaException):  # until the old one is gone
                new = NewTopic(self._topic, self._partitions)
                self._admin.create_topics([new])[self._topic].result(RESPONSE_SECONDS)
                break
            assert time.monotonic() < deadline
            time.sleep(0.02)
        while True:
            with suppress(KafkaException):  # until the broker knows it
                asked = self._admin.describe_topics(TopicCollection([self._topic]))
                found = str(asked[self._topic].result(RESPONSE_SECONDS).topic_id)
                key = topic_key(self._topic, found.translate(str.maketrans("+/", "-_")))
                if key not in self.keys:
                    self.keys.append(key)
                    return
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def _send_until_stopped(self) -> None:
        # A producer of its own for each topic: it numbers partitions as of that topic.
        known, producer = "", None
        while not self._stop.is_set():
            with self._whole:
                if producer is None or known != self.keys[-1]:
                    known = self.keys[-1]
                    producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0})
                self._send(producer, known)
            time.sleep(self._rate.uniform(0.0, 0.08))

    def _send(self, producer: Producer, key: str) -> None:
        def note(error: object, message: Message) -> None:
            assert error is None, error
            there = self.contents.setdefault((key, message.partition() or 0), [])
            assert message.offset() == len(there)
            there.append(int((message.key() or b"").decode()))

        for _ in range(self._rate.randint(1, 8)):
            number = next(self._numbers)
            partition = self._rate.randrange(self._partitions)
            producer.produce(
                self._topic,
                self._make(number),
                key=str(number).encode(),
                partition=partition,
                on_delivery=note,
            )
        assert producer.flush(RESPONSE_SECONDS) == 0


def faults(
    contents: Contents,
    covered: Mapping[tuple[str, int], list[tuple[int, int]]],
    stored: Callable[[list[int]], set[int]],
    last: str,
) -> Iterator[str]:
    """What is wrong in a table, given what was sent.

    Parameters
    ----------
    covered
        The intervals of offsets that the table accounts for, by topic key and partition.
    stored
        Which of these alerts the table has.
    last
        The key of the topic that Kafka has: its account must be whole.
    """
    has = stored([number for numbers in contents.values() for number in numbers])
    for place, spans in covered.items():
        sent = contents.get(place, [])
        offsets = [offset for low, high in spans for offset in range(low, high)]
        if beyond := [offset for offset in offsets if offset >= len(sent)]:
            yield f"{place}: {beyond} are accounted for, but only {len(sent)} alerts were sent"
        if lies := [o for o in offsets if o < len(sent) and sent[o] not in has]:
            yield f"{place}: {lies} are accounted for, but their alerts are not stored"
    for place, sent in contents.items():
        if place[0] != last:
            continue
        if covered.get(place, []) != [(0, len(sent))]:
            yield f"{place}: {covered.get(place)} of {len(sent)} alerts are accounted for"
        if lost := [number for number in sent if number not in has]:
            yield f"{place}: the alerts {lost} are not stored"
