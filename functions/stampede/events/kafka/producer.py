"""Messages that a command gives to Kafka, and what became of them."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from stampede.errors import SetupError
from stampede.events.kafka.errors import reason
from stampede.runtime.counts import counted

RESPONSE_SECONDS = 10.0  # without a response for this long, there is no Kafka
DELIVERY_SECONDS = 300  # a Kafka that was there may be restarting: wait for it


class Deliveries:
    """The messages that Kafka has taken, and why it did not take others.

    Attributes
    ----------
    taken
        Number of messages that Kafka has acknowledged.
    failures
        How often Kafka failed, by reason.
    """

    def __init__(self) -> None:
        self.taken = 0
        self.failures: Counter[str] = Counter()

    def produce(
        self,
        producer: Producer,
        topic: str,
        value: bytes,
        on_taken: Callable[[Message], None],
        **options: Any,
    ) -> None:
        """Give Kafka a message; while its queue is full, wait. `options` are those of `produce`.

        `on_taken` is called once Kafka has the message.
        """

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.failures[reason(error)] += 1
                return
            self.taken += 1
            on_taken(message)

        while True:
            try:
                producer.produce(topic, value, on_delivery=delivered, **options)
            except BufferError:  # the queue is full: let Kafka take a part of it
                producer.poll(0.1)
            else:
                producer.poll(0)
                return

    def check(self, bootstrap: str) -> None:
        """Raise `SetupError` if Kafka failed."""
        if self.failures:
            reason = self.failures.most_common(1)[0][0]
            raise SetupError(
                f"Kafka at {bootstrap} took {counted(self.taken, 'alert')}, then failed: {reason}"
            )
