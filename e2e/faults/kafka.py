"""Faults of Kafka: rebalances of the functions' groups, and records that retention deletes."""

import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from e2e.faults.later import Later
from e2e.faults.processes import Processes
from e2e.places import ROOT
from stampede.events import BOTH_TABLES
from stampede_simulator.alert_bytes import SimulatedAlert

TOPIC = "short-lived"
"""A topic of which retention deletes records that no function has got."""
GROUP = "stampede"
MEMBER_SECONDS = (2.0, 12.0)
FETCH_SECONDS = 1.0  # longer than a fetch that the broker holds while it has no record
RESPONSE_SECONDS = 20.0
MOST_SENT, KEPT = 8, 4  # records


class NotDeleted(Exception):
    """Kafka did not say that it deleted records; it may have."""


FAILED = (KafkaException, NotDeleted)  # Kafka itself may be killed or stand still


class Kafka:
    """Meddles with the group of `alerts` and with the records of topics.

    Parameters
    ----------
    topics
        The topics of the campaign without `TOPIC`.
    alerts
        What is sent to `TOPIC`.

    Attributes
    ----------
    sent
        The alerts in `TOPIC`, by offset.
    forgotten
        The offsets of `TOPIC` that were deleted before the group had committed them.
    """

    def __init__(
        self,
        chance: random.Random,
        bootstrap: str,
        topics: Sequence[str],
        alerts: Iterator[SimulatedAlert],
        processes: Processes,
        later: Later,
    ) -> None:
        self._chance, self._topics, self._alerts = chance, topics, alerts
        self._processes, self._later = processes, later
        self._servers: dict[str, str | int] = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.sent: dict[int, SimulatedAlert] = {}
        self.forgotten: set[int] = set()

    def rebalance(self) -> str:
        """Another consumer joins the group of `alerts`, commits nothing, and leaves."""
        seconds = self._chance.uniform(*MEMBER_SECONDS)
        self._later.start(lambda: self._be_member(seconds))
        return f"rebalance of {GROUP}, which has another member for {seconds:.0f} s"

    def forget_what_is_stored(self) -> str | None:
        """Retention deletes records that the group has committed."""
        where = TopicPartition(self._chance.choice(self._topics), self._chance.randrange(4))
        try:
            committed = self._committed(where)
            if committed <= 0:
                return None
            low = self._delete(where, committed)
        except FAILED:
            return None
        return f"retention of {where.topic}/{where.partition} to {low}, which is stored"

    def forget_what_is_new(self) -> str | None:
        """Retention deletes records while `alerts` stands still; some newer ones stay.

        It may have got some of them.
        """
        where = TopicPartition(TOPIC, 0)
        functions = self._processes.all(BOTH_TABLES)
        try:
            if not self.sent:
                self._send(KEPT)  # Stampede knows where the topic began
                return None
            for function in functions:
                self._processes.suspend(function)
            time.sleep(FETCH_SECONDS)
            committed = self._committed(where)
            if committed <= 0:
                return None
            count = self._chance.randint(1, MOST_SENT)
            self._send(count)
            end = max(self.sent) + 1
            self.forgotten |= set(range(committed, end))
            low = self._delete(where, end)
            self._send(KEPT)
        except FAILED:
            return None
        finally:
            for function in functions:
                self._processes.resume(function)
        return f"retention-early of {TOPIC}/0 to {low}, before {count} records were stored"

    def _be_member(self, seconds: float) -> None:
        with suppress(KafkaException):
            member = Consumer(
                self._servers
                | {
                    "group.id": GROUP,
                    "partition.assignment.strategy": "cooperative-sticky",
                    "auto.offset.reset": "earliest",
                    "enable.auto.commit": False,
                    "session.timeout.ms": 10000,
                }
            )
            try:
                member.subscribe([*self._topics, TOPIC])
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    member.poll(0.2)
            finally:
                member.close()

    def _committed(self, where: TopicPartition) -> int:
        """The offset that the group committed; negative without one. Raises `KafkaException`."""
        asking = Consumer(self._servers | {"group.id": GROUP})
        try:
            [found] = asking.committed([where], RESPONSE_SECONDS)
            return int(found.offset)
        finally:
            asking.close()

    def _delete(self, where: TopicPartition, before: int) -> int:
        """Delete the records before an offset; the first that is left. Raises `NotDeleted`."""
        words = [self._servers["bootstrap.servers"], where.topic, where.partition, before]
        command = [sys.executable, "-m", "e2e.faults.delete_records", *map(str, words)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise NotDeleted(done.stderr)
        return int(done.stdout)

    def _send(self, count: int) -> None:
        """Send so many alerts to `TOPIC`, each once. Raises `KafkaException`."""
        producer = Producer(self._servers | {"enable.idempotence": True})
        for _ in range(count):
            alert = next(self._alerts)

            def sent(error, message, alert=alert) -> None:  # type: ignore[no-untyped-def]
                if error is None:
                    self.sent[message.offset()] = alert

            producer.produce(TOPIC, alert.body, partition=0, on_delivery=sent)
        producer.flush()
