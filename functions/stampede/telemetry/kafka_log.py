"""The messages of librdkafka, Kafka's client, as lines of the log."""

import logging
import re
import time

from stampede.telemetry.logs import get_logger

log = get_logger()

REPEAT_SECONDS = 60.0  # until a message that repeats is written again
MOST = 1000  # messages that are remembered
STATE = " (after "  # what differs each time: "(after 2ms in state CONNECT, 3 identical …)"
_NUMBERS = re.compile(r"\d+")


class KafkaLog:
    """What a client of confluent_kafka takes as its `logger`: it has the one method it calls.

    A client gives messages when it is polled. One that repeats, numbers and states apart, is
    written once in `REPEAT_SECONDS`, with how often it came: a broker that is down makes ten a
    second.
    """

    def __init__(self) -> None:
        self._written: dict[tuple[str, str], float] = {}
        self._repeated: dict[tuple[str, str], int] = {}

    def log(self, level: int, _: str, facility: str, client: str, text: str) -> None:
        """Write a message; `level` is one of `logging`, `facility` librdkafka's, as ``FAIL``."""
        key, now = (facility, _NUMBERS.sub("0", text.partition(STATE)[0])), time.monotonic()
        if now - self._written.get(key, float("-inf")) < REPEAT_SECONDS:
            self._repeated[key] = self._repeated.get(key, 0) + 1
            return
        if len(self._written) >= MOST:
            self._written.clear()
            self._repeated.clear()
        self._written[key] = now
        repeated = self._repeated.pop(key, 0)
        write = log.error if level >= logging.ERROR else log.warning
        if level < logging.WARNING:
            write = log.info
        write(
            "librdkafka",
            facility=facility,
            client=client,
            message=text,
            **({"repeated": repeated} if repeated else {}),
        )


KAFKA_LOG = KafkaLog()
