"""How old alerts are when they are stored, by the times of their Kafka records."""

import math
import time
from collections.abc import Mapping

from stampede.errors import StampedeError
from stampede.events.cloudevents.envelope import HEADER, Envelope
from stampede.events.cloudevents.event import Event
from stampede.events.http.endpoint import Handle
from stampede.telemetry import event_metrics

PRODUCER_TIMESTAMP = f"{HEADER}producertimestamp"
"""The attribute of a header that Rubin sends with each alert: milliseconds since 1970, UTC, with
decimals (``produceAlerts`` in lsst/ap_association)."""


def observing_age(name: str, handle: Handle) -> Handle:
    """`handle`, which stores an event, with a metric of the alert's age when it is stored."""
    age = event_metrics.ALERT_AGE.labels(name)

    async def observed(event: Event) -> StampedeError | None:
        error = await handle(event)
        if error is None and (sent := sent_at(event.attributes)) is not None:
            age.observe(max(0.0, time.time() - sent))
        return error

    return observed


def sent_at(attributes: Mapping[str, str]) -> float | None:
    """When the survey sent an alert, or else Kafka's timestamp: seconds since 1970, UTC.

    The survey's time is earlier if the record was copied from another Kafka, or waited for one.
    None if the event has neither.
    """
    if sent := _milliseconds(attributes.get(PRODUCER_TIMESTAMP)):
        return sent
    moment = Envelope(attributes.get("time")).moment
    return moment.timestamp() if moment else None


def _milliseconds(text: str | None) -> float | None:
    """The seconds of a text with milliseconds; None if it is no time that a survey can send at."""
    try:
        seconds = float(text or "") / 1000
    except ValueError:
        return None
    return seconds if math.isfinite(seconds) and seconds > 0 else None
