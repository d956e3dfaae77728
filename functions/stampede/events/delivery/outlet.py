"""Where a source's alerts go: each outlet takes every alert, for the tables that it covers.

An alert is fetched from Kafka once and delivered to each outlet. An outlet that takes nothing does
not hold the others for long: docs/adr/0069-one-fetch.md.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from stampede.events.cloudevents.kafka_record import CloudEventHeaders, Record
from stampede.events.delivery.response import SinkResponse
from stampede.telemetry import tracing
from stampede.telemetry.logs import get_logger

log = get_logger()


class Deliverer(Protocol):
    """What brings events to an outlet, as a `Delivery` does."""

    @property
    def down(self) -> bool:
        """Whether it accepts no event at all."""

    async def deliver(self, headers: Mapping[str, str], record: Record) -> SinkResponse | None:
        """Return when the event is accepted; why it is a dead letter, if it is one now."""


class Outlet:
    """A place that gets every alert.

    Parameters
    ----------
    name
        In logs.
    tables
        The tables that it fills; a commit says by table what it lacks.
    delivery
        Brings events to it.

    Attributes
    ----------
    delivered
        When it last accepted an event, by the monotonic clock.
    """

    def __init__(self, name: str, tables: Sequence[str], delivery: Deliverer) -> None:
        self.name = name
        self.tables = tuple(tables)
        self.delivery = delivery
        self.delivered = float("-inf")

    @property
    def down(self) -> bool:
        """Whether it accepts no event."""
        return self.delivery.down

    async def deliver(self, headers: Mapping[str, str], record: Record) -> None:
        """Deliver a record's event, as a step of its trace if that is recorded."""
        before = tracing.of_record(record.headers) if tracing.recording() else None
        with tracing.step("deliver alert", before, may_begin=True) as step:
            if step:
                tracing.note(
                    {
                        "messaging.system": "kafka",
                        "messaging.destination.name": record.topic,
                        "messaging.destination.partition.id": str(record.partition),
                        "messaging.kafka.offset": record.offset,
                        "messaging.message.body.size": len(record.value),
                        "stampede.outlet": self.name,
                    }
                )
                headers = {**headers, **step.headers}
            refusal = await self.delivery.deliver(headers, record)
            if step and refusal:
                step.fail(refusal.outcome)
        self.delivered = time.monotonic()


def headers_of(event_headers: CloudEventHeaders, record: Record) -> dict[str, str]:
    """The headers of a record's event; without what cannot be sent, if something cannot."""
    try:
        return event_headers.headers(record)
    except Exception as error:  # of what may be left out; the alert itself is in the body
        log.warning("sent without key, time and headers", record=str(record), error=error)
        lost = "its key and headers"
        bare = record._replace(milliseconds=None, key=None, headers=(), lost=lost)
        return event_headers.headers(bare)
