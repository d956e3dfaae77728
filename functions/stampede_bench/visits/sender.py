"""Sends visits to Kafka, from a process of its own: so it delays no measurement in this one."""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from stampede.errors import StampedeError
from stampede_bench.visits.alerts import VisitAlerts
from stampede_local.kafka import producer

PARTITIONS = 4
TURN = 20  # messages between two looks at the clock
FLUSH_SECONDS = 300.0


class Visit(NamedTuple):
    """Alerts that are sent together: numbers from `first` on, from `begin` (s, UNIX) on."""

    first: int
    size: int
    begin: float
    seconds: float

    @property
    def numbers(self) -> range:
        """The numbers of the alerts."""
        return range(self.first, self.first + self.size)


class Sent(NamedTuple):
    """What Kafka says of each alert of a visit, in the order of their numbers.

    `partitions` and `offsets` are integers, `times` are Kafka's timestamps in seconds (UNIX); each
    has the shape (size,).
    """

    partitions: np.ndarray
    offsets: np.ndarray
    times: np.ndarray


class Sender(NamedTuple):
    """The process that sends."""

    pool: ProcessPoolExecutor
    pid: int

    def send(self, visit: Visit) -> "Future[Sent]":
        """Send a visit once those asked for earlier are sent."""
        return self.pool.submit(_send, visit)


@contextmanager
def sender(bootstrap: str, topic: str, alerts: VisitAlerts) -> Iterator[Sender]:
    """Start the process, and end it afterwards."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(1, context, _start, (bootstrap, topic, alerts))
    try:
        yield Sender(pool, pool.submit(os.getpid).result())
    finally:
        pool.shutdown(cancel_futures=True)


def partition_of(number: int) -> int:
    """The partition that an alert is sent to."""
    return number % PARTITIONS


def forget(bootstrap: str, topic: str, visits: Iterable[Sent]) -> None:
    """Have Kafka delete visits that are stored, and all before them: they need much space."""
    ends: dict[int, int] = {}
    for sent in visits:
        for partition in np.unique(sent.partitions).tolist():
            end = int(sent.offsets[sent.partitions == partition].max()) + 1
            ends[partition] = max(end, ends.get(partition, 0))
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    places = [TopicPartition(topic, partition, end) for partition, end in ends.items()]
    for deleted in admin.delete_records(places).values():
        deleted.result(60)


# -- in the process that sends

_state: dict[str, Any] = {}


def _start(bootstrap: str, topic: str, alerts: VisitAlerts) -> None:
    _state.update(client=producer(bootstrap), topic=topic, alerts=alerts)


def _send(visit: Visit) -> Sent:
    """Send the alerts evenly through the visit's seconds, or later if Kafka is slower."""
    client: Producer = _state["client"]
    alerts: VisitAlerts = _state["alerts"]
    sent = Sent(np.zeros(visit.size, np.int64), np.full(visit.size, -1), np.zeros(visit.size))
    for at, number in enumerate(visit.numbers):
        if at % TURN == 0:
            due = visit.begin + visit.seconds * at / visit.size
            time.sleep(max(0.0, due - time.time()))
        _produce(client, number, alerts.message(number), partial(_note, sent, at))
    client.flush(FLUSH_SECONDS)
    if lost := int((sent.offsets < 0).sum()):
        raise StampedeError(f"Kafka did not take {lost:,} of {visit.size:,} alerts")
    return sent


def _produce(
    client: Producer,
    number: int,
    message: bytes,
    delivered: Callable[[KafkaError | None, Message], None],
) -> None:
    while True:
        try:
            client.produce(
                _state["topic"], message, partition=partition_of(number), on_delivery=delivered
            )
            break
        except BufferError:  # Kafka is slower than this process: wait for it
            client.poll(0.01)
    client.poll(0)


def _note(sent: Sent, at: int, error: KafkaError | None, message: Message) -> None:
    if error is None:
        sent.partitions[at], sent.offsets[at] = message.partition(), message.offset()
        sent.times[at] = message.timestamp()[1] / 1e3
