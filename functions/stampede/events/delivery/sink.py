"""A URL that takes events: what is sent again, and when the sink counts as down.

How often is decided in docs/adr/0002-source-retries.md.
"""

import asyncio
import random
import time
from collections.abc import Mapping

from stampede.errors import Overloaded
from stampede.events.delivery.poison_events import PoisonEvents
from stampede.events.delivery.response import Poster, SinkResponse, Verdict, post
from stampede.telemetry import source_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()

LONGEST_PAUSE = 30.0
LONGEST_PROBE_PAUSE = 5.0
GIVE_UP_SECONDS = 300.0


class Abandoned(Exception):
    """The source is stopping: the event stays in Kafka, its offset uncommitted."""


class Sink:
    """A URL that takes events, and may be down for a while.

    While the sink is down all events wait and one at a time probes it. So the sink gets no storm
    of requests when it comes back, and works again within seconds.

    Parameters
    ----------
    name
        ``sink``, ``dead letters`` or ``broker``, in logs and metrics.
    url
        Where events are sent.
    poster
        Sends them.
    stop
        Once set, an event that would have to wait is abandoned.
    backoff_seconds
        First pause after a failure, doubled each time up to 30 s, with jitter.
    longest_probe_pause
        Most seconds between two probes of a sink that is down.
    give_up_seconds
        How long an event must fail, whatever the response, while the sink accepts others, before
        the failures count as the event's.
    """

    def __init__(
        self,
        name: str,
        url: str,
        poster: Poster,
        stop: asyncio.Event,
        backoff_seconds: float,
        longest_probe_pause: float = LONGEST_PROBE_PAUSE,
        give_up_seconds: float = GIVE_UP_SECONDS,
    ) -> None:
        self.name, self.url = name, url
        self._poster = poster
        self._stop = stop
        self._backoff = backoff_seconds
        self._longest_probe_pause = longest_probe_pause
        self._accepted = 0
        self._poison_events = PoisonEvents(give_up_seconds)
        self._down_since: float | None = None
        self._probes = 1
        self._probing = asyncio.Lock()
        self._stuck = source_metrics.SOURCE_STUCK.labels(name)  # exported as 0 from the beginning

    @property
    def down(self) -> bool:
        """Whether the sink is down: it accepts no event."""
        return self._down_since is not None

    async def send(
        self, headers: Mapping[str, str], body: bytes, retries: int | None
    ) -> SinkResponse | None:
        """Send an event until the sink accepts it or the event fails for good.

        Parameters
        ----------
        retries
            Failures of the event after the first before it fails for good. None: never.

        Returns
        -------
        SinkResponse or None
            None if the event was accepted, otherwise the last response.

        Raises
        ------
        Abandoned
            The source is stopping, and the event is not accepted.
        """
        event = object()  # for `PoisonEvents`
        attempts = failures = 0
        try:
            while True:
                response = await self._attempt(event, headers, body)
                if response.verdict is Verdict.ACCEPTED:
                    return None
                attempts += 1
                failures += response.verdict is Verdict.FAILED
                if response.verdict is Verdict.REFUSED or failures > (retries or 0):
                    break
                # 429 is about the load, and a large event may meet it more often.
                overloaded = response.status == Overloaded.status
                if not overloaded and self._poison_events.fail(event, time.monotonic()):
                    break
                await self._back_off(attempts, response)
        finally:
            self._poison_events.forget(event)
        if retries is not None:
            return response
        await self._send_stuck(headers, body, attempts, response)
        return None

    async def _send_stuck(
        self, headers: Mapping[str, str], body: bytes, attempts: int, response: SinkResponse
    ) -> None:
        """Send an event that failed, until it is accepted: it has nowhere else to go."""
        self._stuck.inc()
        self._log_stuck(headers, response)
        try:
            while response.verdict is not Verdict.ACCEPTED:
                await self._back_off(attempts, response)
                response = await self._attempt(self, headers, body)
                attempts += 1
        finally:
            self._stuck.dec()

    async def _attempt(
        self, event: object, headers: Mapping[str, str], body: bytes
    ) -> SinkResponse:
        """Send an event once; while the sink is down, as a probe when it is this event's turn."""
        while self.down:
            async with self._probing:
                if self.down:
                    await self._pause(self._probes, longest=self._longest_probe_pause)
                    self._probes += 1
                    return await self._post(event, headers, body)
        return await self._post(event, headers, body)

    async def _post(self, event: object, headers: Mapping[str, str], body: bytes) -> SinkResponse:
        """Send an event once, and learn from the response whether the sink is up or down."""
        accepted_before = self._accepted
        response = await post(self._poster, self.url, headers, body)
        if response.verdict is Verdict.ACCEPTED:
            self._accepted += 1
            self._poison_events.accept(event)
            self._mark_up()
            return response
        source_metrics.SOURCE_RETRIES.labels(self.name, response.outcome).inc()
        others_accepted = self._accepted > accepted_before
        if response.verdict is Verdict.UNCLEAR:
            verdict = Verdict.FAILED if others_accepted else Verdict.DOWN
            response = response._replace(verdict=verdict)
        if response.verdict is not Verdict.DOWN:
            self._mark_up()
        elif not (others_accepted or self._poison_events.is_suspected(event)):
            self._mark_down(response)
        return response

    def _mark_down(self, response: SinkResponse) -> None:
        if self._down_since is not None:
            return
        self._down_since, self._probes = time.monotonic(), 1
        log.warning(
            "sink is down: events wait, none is lost",
            sink=self.name,
            url=self.url,
            outcome=response.outcome,
            reason=response.reason,
        )

    def _mark_up(self) -> None:
        if self._down_since is not None:
            seconds = round(time.monotonic() - self._down_since, 1)
            log.info("sink is up again", sink=self.name, url=self.url, seconds=seconds)
            self._down_since = None

    async def _back_off(self, attempts: int, response: SinkResponse) -> None:
        """Pause after a failed attempt, unless the sink is down: then `_attempt` pauses."""
        if not self.down:
            await self._pause(attempts, at_least=response.retry_after)

    async def _pause(
        self, attempts: int, at_least: float = 0.0, longest: float = LONGEST_PAUSE
    ) -> None:
        seconds = min(longest, self._backoff * 2 ** min(attempts - 1, 20))
        seconds = max(at_least, seconds * random.uniform(0.5, 1.0))
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return
        raise Abandoned

    def _log_stuck(self, headers: Mapping[str, str], response: SinkResponse) -> None:
        remedy = (
            "set STAMPEDE_DEAD_LETTER_SINK, or repair the sink"
            if self.name == "sink"
            else "repair the dead-letter sink"
        )
        log.error(
            "event cannot be delivered: it is retried for ever and holds its partition's offset; "
            + remedy,
            id=headers["ce-id"],
            source=headers["ce-source"],
            sink=self.name,
            url=self.url,
            outcome=response.outcome,
            reason=response.reason,
        )
