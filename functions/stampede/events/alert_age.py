"""How old alerts are when they are stored, by the timestamps of their Kafka records."""

import time

from stampede import metrics
from stampede.errors import StampedeError
from stampede.events.envelope import Envelope
from stampede.events.event import Event
from stampede.events.event_endpoint import Handle


def observing_age(name: str, handle: Handle) -> Handle:
    """`handle`, which stores an event, with a metric of the time since the event's timestamp."""
    age = metrics.ALERT_AGE.labels(name)

    async def observed(event: Event) -> StampedeError | None:
        error = await handle(event)
        if error is None and (moment := Envelope(event.attributes.get("time")).moment):
            age.observe(max(0.0, time.time() - moment.timestamp()))
        return error

    return observed
