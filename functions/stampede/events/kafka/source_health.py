"""Whether a source does its work, as its Kafka client sees it.

The client reports its state every few seconds, as JSON; librdkafka's ``STATISTICS.md`` defines it.
A source is ready when the client is a member of its group, knows its partitions, and is connected
to the brokers that lead them. It may have none: if other members have them all.
"""

import json
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from stampede.events.delivery.in_flight import PartitionKey
from stampede.store.offsets.coverage import Interval
from stampede.telemetry import source_metrics

STATISTICS_SECONDS = 2.0
STALE_SECONDS = 20.0  # statistics older than this say nothing
# The Kafka thread turns at least every 48 s: it waits for topic ids and offsets.
STUCK_SECONDS = 60.0
CONSUMER = "consumer"  # the client that is a member of the group
UNLEARNT_SECONDS = 30.0  # an idle source asks for the ids of its topics every 3 s

Statistics = Mapping[str, Any]


class SourceHealth:
    """What `/health/…` and the metrics say of a source.

    The Kafka threads write it, the event loop reads it.
    """

    def __init__(self) -> None:
        self._polled = {CONSUMER: time.monotonic()}
        self._told = -STALE_SECONDS
        self._learnt = time.monotonic()
        self._fault: str | None = None
        self._received = 0  # bytes
        self.missing: Collection[str] = ()
        """Topics that the source subscribes to by name and that Kafka does not have."""
        self.idle = False
        """Whether there is no topic to subscribe to: those of families are yet to be made."""
        self.waiting: Mapping[PartitionKey, Interval] = {}
        """Of each assigned partition the first offset not committed, and the end of the log."""
        source_metrics.SOURCE_LAST_POLL.set_function(self.seconds_since_poll)
        source_metrics.SOURCE_READY.set_function(lambda: self.not_ready() is None)

    def polled(self, client: str = CONSUMER) -> None:
        """Note that a Kafka client was just asked for records."""
        self._polled[client] = time.monotonic()

    def ended(self, client: str) -> None:
        """Note that a Kafka client is no more."""
        self._polled.pop(client, None)

    def told(self, statistics: str) -> None:
        """Note what the Kafka client reports; the callback ``stats_cb`` of confluent-kafka."""
        state = json.loads(statistics)
        self.waiting = dict(waiting(state))
        self._fault = fault(state, self.missing, self.idle)
        before, self._received = self._received, state.get("rx_bytes", 0)
        source_metrics.SOURCE_RECEIVED.inc(max(0, self._received - before))
        self._told = time.monotonic()

    def learnt(self) -> None:
        """Note that the ids of the topics of all assigned partitions were just learnt."""
        self._learnt = time.monotonic()

    def seconds_since_poll(self) -> float:
        """Time since a Kafka client was last asked for records: the one that waits longest."""
        return time.monotonic() - min(list(self._polled.values()))

    def not_alive(self) -> str | None:
        """Why the process should be started again; None if it should not."""
        seconds = self.seconds_since_poll()
        if seconds > STUCK_SECONDS:
            return f"Kafka was last asked for records {seconds:.0f} s ago"
        return None

    def not_ready(self) -> str | None:
        """Why the source gets no records; None if it gets those that there are."""
        if reason := self.not_alive():
            return reason
        if time.monotonic() - self._told > STALE_SECONDS:
            return "the Kafka client has not reported its state"
        if self._fault is None and (seconds := time.monotonic() - self._learnt) > UNLEARNT_SECONDS:
            return f"Kafka has not said the ids of the topics for {seconds:.0f} s: see the log"
        return self._fault


def fault(state: Statistics, missing: Collection[str] = (), idle: bool = False) -> str | None:
    """What keeps a Kafka client from getting records; None if nothing does.

    `missing` are the topics that it subscribes to and that Kafka does not have; `idle` says that
    there are none to subscribe to.
    """
    brokers = {each["nodeid"]: each for each in state["brokers"].values()}
    if all(each["state"] != "UP" for each in brokers.values()):
        found = sorted({f"{each['name']} {each['state']}" for each in brokers.values()})
        return f"no connection to Kafka: {', '.join(found)}"
    if missing and not any(assigned(state)):
        return f"Kafka has no topic {', '.join(sorted(missing))}"
    if idle:
        return None
    group = state.get("cgrp", {})
    if group.get("state") != "up":
        return "no connection to the coordinator of the consumer group"
    if group.get("join_state") != "steady":
        return f"joining the consumer group: {group.get('join_state')}"
    for (topic, number), partition in assigned(state):
        leader = brokers.get(partition["leader"])
        if leader is None or leader["state"] != "UP":
            name = leader["name"] if leader else "none"
            return f"no connection to the leader of {topic}/{number}: {name}"
    return None


def waiting(state: Statistics) -> Iterator[tuple[PartitionKey, Interval]]:
    """What the group has not committed of each assigned partition whose end is known."""
    for key, partition in assigned(state):
        committed, end = partition["committed_offset"], partition["hi_offset"]
        begin = committed if committed >= 0 else partition["lo_offset"]
        yield key, (begin, end if 0 <= begin <= end else begin)


def assigned(state: Statistics) -> Iterator[tuple[PartitionKey, Mapping[str, Any]]]:
    """The partitions that the client fetches, or would fetch if it could."""
    for name, topic in state["topics"].items():
        for number, partition in topic["partitions"].items():
            if partition["fetch_state"] not in ("none", "stopped", "stopping"):
                yield (name, int(number)), partition
