"""The broker of one machine: sends an event to the subscribers of all Triggers that match it.

The broker stores nothing. A Knative Broker answers 202 once it holds the event. This broker answers
202 once every subscriber has accepted the event, so until then the sender still has it. If a
subscriber refuses an event for good, or fails to accept it while it accepts others, the event goes
to the Trigger's dead-letter sink. Without a dead-letter sink the event is dropped and logged, as by
Knative; `reconcile` later finds what is missing. So one event never stops the notifications behind
it.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from stampede.config.settings import Settings
from stampede.errors import SubscriberDown
from stampede.events.auth.sender_credentials import SenderProof
from stampede.events.broker.triggers import DeliverySpec, Trigger, read_triggers
from stampede.events.cloudevents.event import Event
from stampede.events.cloudevents.kafka_record import extension_headers
from stampede.events.cloudevents.s3_events import headers_of
from stampede.events.delivery.poison_events import PoisonEvents
from stampede.events.delivery.response import (
    RESPONSE_SECONDS,
    SinkResponse,
    Verdict,
    error_extensions,
    post,
)
from stampede.events.http.endpoint import EventEndpoint, HttpBinding
from stampede.http.client import Connections
from stampede.telemetry import source_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

CONNECT_SECONDS = 3.0
IDLE_SECONDS = 4.0
# An event that a subscriber fails to accept for so long while it accepts others is given up.
GIVE_UP_SECONDS = 30.0
# Most events under way to one subscriber; the rest of a backlog waits in this process.
CONCURRENCY = 16


class Route(NamedTuple):
    """A Trigger, and the URLs of its subscriber and its dead-letter sink."""

    trigger: Trigger
    url: str
    dead_letters: str | None

    @property
    def name(self) -> str:
        """The Trigger's name."""
        return self.trigger.metadata.name

    @property
    def delivery(self) -> DeliverySpec:
        """The Trigger's delivery options."""
        return self.trigger.spec.delivery


def routes_of(triggers: Sequence[Trigger], subscribers: Mapping[str, str]) -> list[Route]:
    """The routes of the Triggers whose subscriber has a URL in `subscribers`."""
    routes = []
    for trigger in triggers:
        spec, dead_letters = trigger.spec, trigger.spec.delivery.deadLetterSink
        url = spec.subscriber.url(subscribers)
        log.info("trigger", trigger=trigger.metadata.name, subscriber=url or "none here")
        if url:
            dead_letters_url = dead_letters.url(subscribers) if dead_letters else None
            routes.append(Route(trigger, url, dead_letters_url))
    return routes


class Broker:
    """Delivers events by routes, over `connections`."""

    def __init__(self, routes: Sequence[Route], connections: Connections) -> None:
        self._routes = routes
        self._connections = connections
        self._poison_events = {route.name: PoisonEvents(GIVE_UP_SECONDS) for route in routes}

    async def handle(self, event: Event) -> SubscriberDown | None:
        """Deliver an event; returns None once every matching subscriber has accepted it."""
        headers = headers_of(event)
        errors = await asyncio.gather(
            *(
                self._deliver(route, headers, event.data)
                for route in self._routes
                if route.trigger.matches(event.attributes)
            )
        )
        return next((error for error in errors if error), None)

    async def _deliver(
        self, route: Route, headers: Mapping[str, str], body: bytes
    ) -> SubscriberDown | None:
        response, poison = await self._retry(route, headers, body)
        outcome = await self._settle(route, headers, body, response, poison)
        source_metrics.BROKER_EVENTS.labels(route.name, outcome).inc()
        if outcome == "delivered":
            return None
        reason = response.detail[:200].decode(errors="replace")
        log.warning(
            f"event {outcome}",
            trigger=route.name,
            id=headers["ce-id"],
            subject=headers.get("ce-subject"),
            subscriber=route.url,
            outcome=response.outcome,
            reason=reason,
        )
        if outcome != "failed":
            return None
        return SubscriberDown(f"Trigger {route.name}: {route.url}: {response.outcome}: {reason}")

    async def _settle(
        self,
        route: Route,
        headers: Mapping[str, str],
        body: bytes,
        response: SinkResponse,
        poison: bool,
    ) -> str:
        """Handle the subscriber's last response; return the outcome, a label of the metric."""
        if response.verdict is Verdict.ACCEPTED:
            return "delivered"
        if route.dead_letters:
            extensions = extension_headers(error_extensions(route.url, response))
            dead_letter = {**headers, **extensions}
            last = await post(self._connections, route.dead_letters, dead_letter, body)
            return "dead-lettered" if last.verdict is Verdict.ACCEPTED else "failed"
        return "dropped" if poison or response.verdict is Verdict.REFUSED else "failed"

    async def _retry(
        self, route: Route, headers: Mapping[str, str], body: bytes
    ) -> tuple[SinkResponse, bool]:
        """Send an event as often as its Trigger allows.

        Returns
        -------
        tuple
            The last response, and whether the event fails alone: then it is of no use to let its
            sender send it again, which would hold up the sender's queue.
        """
        poison = self._poison_events[route.name]
        event = (headers["ce-source"], headers["ce-id"])
        retry = 0
        while True:
            response = await self._post(route, headers, body)
            if response.verdict is Verdict.ACCEPTED:
                poison.accept(event)
                return response, False
            if response.verdict is Verdict.REFUSED:
                return response, False
            if poison.fail(event, time.monotonic()):
                return response, True
            retry += 1
            if retry > route.delivery.retry:
                return response, False
            await asyncio.sleep(max(response.retry_after, route.delivery.pause(retry)))

    async def _post(self, route: Route, headers: Mapping[str, str], body: bytes) -> SinkResponse:
        limit = route.delivery.timeout
        try:
            async with asyncio.timeout(limit.total_seconds() if limit else None):
                return await post(self._connections, route.url, headers, body)
        except TimeoutError:
            return SinkResponse(Verdict.UNCLEAR, None, f"no answer within {limit}".encode())


def broker_app(name: str, settings: Settings) -> EventEndpoint:
    """`broker`: reads its Triggers once, before it listens. Raises `SetupError`."""
    routes = routes_of(read_triggers(settings.triggers), settings.subscribers)
    http = connections(CONCURRENCY, SenderProof(settings).headers)
    broker = Broker(routes, http)
    return EventEndpoint.of(
        name, broker.handle, settings, [http], binding=HttpBinding(accepted=202)
    )


def connections(
    concurrency: int, headers: Callable[[], Mapping[str, str]] | None = None
) -> Connections:
    """Kept-alive connections, at most this many to a host; 0 for any number.

    Each request carries `headers`.
    """
    return Connections(concurrency, IDLE_SECONDS, CONNECT_SECONDS, RESPONSE_SECONDS, headers)
