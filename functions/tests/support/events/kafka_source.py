"""What Knative's KafkaSource does with records that are no CloudEvents, as far as a sink sees it.

Its data plane is Java in an image that cannot be had here. This follows eventing-kafka-broker 1.20:
the events of ``InvalidCloudEventInterceptor``, the bound of ``UnorderedConsumerVerticle``, the
retries of ``WebClientCloudEventSender``, the dead letters and commits of ``RecordDispatcherImpl``.
It shares no code with Stampede's own source.
"""

import base64
import re
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from urllib.parse import quote

import urllib3
from confluent_kafka import Consumer, Message, TopicPartition

RETRYABLE = (404, 408, 409, 429)  # and all from 500
DETAIL = 1024  # bytes of a response that a dead letter has


class KafkaSource:
    """Sends the records of a topic to a sink, while entered.

    Parameters
    ----------
    max_poll_records
        The cluster's `max.poll.records`.
    connections
        The cluster's `maxPoolSize`.
    retry, backoff_seconds
        Of `delivery`; the backoff is exponential.
    extensions
        Of `ceOverrides`.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group: str,
        sink: str,
        dead_letters: str,
        max_poll_records: int = 50,
        connections: int = 100,
        retry: int = 12,
        backoff_seconds: float = 0.05,
        extensions: Mapping[str, str] | None = None,
    ) -> None:
        self._topic, self._sink, self._dead_letters = topic, sink, dead_letters
        self._most, self._retry, self._backoff = max_poll_records, retry, backoff_seconds
        self._extensions = dict(extensions or {})
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._http = urllib3.PoolManager(maxsize=connections, block=True, retries=False, timeout=90)
        self._pool = ThreadPoolExecutor(2 * max_poll_records)
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._done: dict[int, set[int]] = defaultdict(set)
        self._next: dict[int, int] = {}
        self.in_flight = self.most_in_flight = self.attempts = 0
        self.finished = 0
        """Records that the sink or the dead-letter sink took, or that were given up."""
        self.given_up = 0
        """Records that neither took: their offsets are committed all the same."""

    def __enter__(self) -> "KafkaSource":
        self._consumer.subscribe([self._topic])
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()
        self._pool.shutdown()
        self._consumer.close()

    def _run(self) -> None:
        """Poll whenever fewer than `max_poll_records` are in flight: up to twice as many are."""
        while not self._stop.is_set():
            if self.in_flight >= self._most:
                time.sleep(0.001)
                continue
            for record in self._consumer.consume(self._most, 0.1):
                assert record.error() is None, record.error()
                with self._lock:
                    self._next.setdefault(record.partition(), record.offset())
                    self.in_flight += 1
                    self.most_in_flight = max(self.most_in_flight, self.in_flight)
                self._pool.submit(self._dispatch, record)
            self._commit()
        while self.in_flight:
            time.sleep(0.01)
        self._commit()

    def _commit(self) -> None:
        """Commit up to the first record of each partition that is in flight."""
        with self._lock:
            before = dict(self._next)
            for partition, done in self._done.items():
                while self._next[partition] in done:
                    done.remove(self._next[partition])
                    self._next[partition] += 1
            moved = [(p, offset) for p, offset in self._next.items() if offset != before[p]]
        if moved:
            self._consumer.commit(
                offsets=[TopicPartition(self._topic, *each) for each in moved], asynchronous=False
            )

    def _dispatch(self, record: Message) -> None:
        try:
            headers, body = self.event(record), record.value() or b""
            error = self._send(self._sink, headers, body)
            if error is not None:
                error = self._send(self._dead_letters, headers | error, body)
        finally:
            with self._lock:
                self.given_up += error is not None
                self.finished += 1
                self.in_flight -= 1
                self._done[record.partition()].add(record.offset())

    def _send(self, url: str, headers: Mapping[str, str], body: bytes) -> dict[str, str] | None:
        """Send an event until it is accepted, refused, or was retried often enough.

        Returns the attributes of the dead letter; None if it was accepted.
        """
        error: dict[str, str] = {}
        for attempt in range(self._retry + 1):
            if attempt:
                time.sleep(self._backoff * 2 ** (attempt - 1))
            with self._lock:
                self.attempts += 1
            try:
                response = self._http.request("POST", url, body=body, headers=headers)
            except urllib3.exceptions.HTTPError:
                error = {"ce-knativeerrordest": url}
                continue
            if response.status < 300:
                return None
            error = {
                "ce-knativeerrordest": url,
                "ce-knativeerrorcode": str(response.status),
                "ce-knativeerrordata": base64.b64encode(response.data[:DETAIL]).decode(),
            }
            if response.status < 500 and response.status not in RETRYABLE:
                break
        return error

    def event(self, record: Message) -> dict[str, str]:
        """The HTTP headers of a record's event."""
        place = record.partition(), record.offset()
        headers = {
            "ce-specversion": "1.0",
            "ce-id": "partition:{}/offset:{}".format(*place),
            "ce-type": "dev.knative.kafka.event",
            "ce-source": f"/apis/v1/namespaces/sky/kafkasources/lsst#{self._topic}",
            "ce-subject": "partition:{}#{}".format(*place),
            "ce-time": datetime.fromtimestamp(record.timestamp()[1] / 1000, UTC).isoformat(),
            "ce-knativekafkapartition": str(place[0]),
            "ce-knativekafkaoffset": str(place[1]),
        }
        if key := record.key():
            headers["ce-partitionkey"] = headers["ce-key"] = quote(key.decode(errors="replace"))
        for name, value in record.headers() or ():
            if value is None:
                continue
            if name.lower() == "content-type":
                headers["content-type"] = value.decode().lower()
            else:
                clean = re.sub("[^a-z0-9]", "", name.lower())
                headers[f"ce-kafkaheader{clean}"] = quote(value.decode(errors="replace"))
        return headers | {f"ce-{name}": value for name, value in self._extensions.items()}
