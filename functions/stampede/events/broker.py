"""The broker of one machine: sends an event to the subscribers of all Triggers that match it.

It keeps nothing. A Knative Broker says 202 when it holds the event; this one when every
subscriber has it, so that whoever sent it keeps it until then. An event that a subscriber
refuses for good goes to the Trigger's dead-letter sink, or without one is dropped and told, as by
Knative: `reconcile` finds what is lacking.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import structlog

from stampede import metrics
from stampede.errors import SubscriberDown
from stampede.events.connections import Connections
from stampede.events.delivery import ANSWER_SECONDS, Answer, Verdict, error_of, post
from stampede.events.event import Event
from stampede.events.event_endpoint import EventEndpoint
from stampede.events.record import extension_headers
from stampede.events.s3_events import headers_of
from stampede.events.triggers import Delivery, Trigger, read_triggers
from stampede.settings import Settings

log = structlog.get_logger()

CONNECT_SECONDS = 3.0
IDLE_SECONDS = 4.0
# Events under way to one subscriber at a time; the rest of a backlog waits here.
AT_ONCE = 16


class Route(NamedTuple):
    """A Trigger whose subscriber is there."""

    trigger: Trigger
    url: str
    dead_letters: str | None

    @property
    def name(self) -> str:
        """The Trigger's."""
        return self.trigger.metadata.name

    @property
    def delivery(self) -> Delivery:
        """The Trigger's."""
        return self.trigger.spec.delivery


def routes_of(triggers: Sequence[Trigger], subscribers: Mapping[str, str]) -> list[Route]:
    """Where events go, given the URL of each subscriber there is; a Trigger without one is told."""
    routes = []
    for trigger in triggers:
        spec, letters = trigger.spec, trigger.spec.delivery.deadLetterSink
        url = spec.subscriber.url(subscribers)
        log.info("trigger", trigger=trigger.metadata.name, subscriber=url or "none here")
        if url:
            routes.append(Route(trigger, url, letters.url(subscribers) if letters else None))
    return routes


class Broker:
    """Delivers events by routes, within its `lifespan`."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self._routes = routes
        self._connections: Connections

    @asynccontextmanager
    async def lifespan(self, _: Any) -> AsyncIterator[None]:
        """Hold connections."""
        async with connections(AT_ONCE) as self._connections:
            yield

    async def take(self, event: Event) -> SubscriberDown | None:
        """Deliver an event; None when every subscriber that it is for has it."""
        headers = headers_of(event)
        verdicts = await asyncio.gather(
            *(
                self._deliver(route, headers, event.data)
                for route in self._routes
                if route.trigger.matches(event.attributes)
            )
        )
        return next((verdict for verdict in verdicts if verdict), None)

    async def _deliver(
        self, route: Route, headers: Mapping[str, str], body: bytes
    ) -> SubscriberDown | None:
        answer = await self._try(route, headers, body)
        match answer.verdict:
            case Verdict.ACCEPTED:
                outcome = "delivered"
            case _ if route.dead_letters:
                letter = {**headers, **extension_headers(error_of(route.url, answer))}
                last = await post(self._connections, route.dead_letters, letter, body)
                outcome = "dead-lettered" if last.verdict is Verdict.ACCEPTED else "failed"
            case Verdict.REFUSED:
                outcome = "dropped"
            case _:
                outcome = "failed"
        metrics.BROKER_EVENTS.labels(route.name, outcome).inc()
        if outcome == "delivered":
            return None
        reason = answer.detail[:200].decode(errors="replace")
        log.warning(
            f"event {outcome}",
            trigger=route.name,
            id=headers["ce-id"],
            subject=headers.get("ce-subject"),
            subscriber=route.url,
            outcome=answer.outcome,
            reason=reason,
        )
        if outcome != "failed":
            return None
        return SubscriberDown(f"Trigger {route.name}: {route.url}: {answer.outcome}: {reason}")

    async def _try(self, route: Route, headers: Mapping[str, str], body: bytes) -> Answer:
        """The last answer of a subscriber that is tried as often as the Trigger says."""
        retry = 0
        while True:
            answer = await self._offer(route, headers, body)
            if answer.verdict in (Verdict.ACCEPTED, Verdict.REFUSED):
                return answer
            retry += 1
            if retry > route.delivery.retry:
                return answer
            await asyncio.sleep(max(answer.retry_after, route.delivery.pause(retry)))

    async def _offer(self, route: Route, headers: Mapping[str, str], body: bytes) -> Answer:
        limit = route.delivery.timeout
        try:
            async with asyncio.timeout(limit.total_seconds() if limit else None):
                return await post(self._connections, route.url, headers, body)
        except TimeoutError:
            return Answer(Verdict.UNCLEAR, None, f"no answer within {limit}".encode())


def broker_app(name: str, settings: Settings) -> EventEndpoint:
    """`broker`: what it routes by is read once, before it listens. Raises `SetupError`."""
    broker = Broker(routes_of(read_triggers(settings.triggers), settings.subscribers))
    return EventEndpoint(name, broker.take, settings.max_alert_bytes, broker.lifespan, accepted=202)


def connections(at_once: int) -> Connections:
    """Kept-alive connections, so many to a host; 0 for any number."""
    return Connections(at_once, IDLE_SECONDS, CONNECT_SECONDS, ANSWER_SECONDS)
