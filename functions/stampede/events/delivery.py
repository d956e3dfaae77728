"""Carries an event until it is somewhere: at the sink, else at the dead-letter sink.

What is tried again, how often, and whose fault a failure is: docs/adr/0002-source-retries.md.
"""

import asyncio
import base64
import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import NamedTuple

import structlog

from stampede import metrics
from stampede.events.connections import Connections, Unreachable
from stampede.events.record import Record, extension_headers

log = structlog.get_logger()

LONGEST_PAUSE = 30.0
LONGEST_PROBE = 5.0  # between looks at a sink that is down
LONGEST_RETRY_AFTER = 300.0
ANSWER_SECONDS = 300.0  # a Knative revision's own limit


class Verdict(Enum):
    """What an attempt to send an event came to."""

    ACCEPTED = "accepted"
    REFUSED = "refused"  # this event, for good
    FAILED = "failed"  # this event, this time
    UNCLEAR = "unclear"  # the event's fault if the sink takes others, else the sink's
    DOWN = "down"  # the sink's fault


class Answer(NamedTuple):
    """How a sink answered an event."""

    verdict: Verdict
    status: int | None  # None: there was no answer
    detail: bytes  # beginning of its body, or what went wrong
    retry_after: float = 0.0

    @property
    def outcome(self) -> str:
        """Its status, for people."""
        return str(self.status) if self.status else "no answer"


class Abandoned(Exception):
    """The source is stopping: the event is left where it was, in Kafka."""


def judge(status: int) -> Verdict:
    """Whose fault an HTTP status is."""
    if status < 300:
        return Verdict.ACCEPTED
    if status in (404, 429, 503):
        return Verdict.DOWN
    if status in (502, 504):
        return Verdict.UNCLEAR
    if status >= 500 or status in (408, 409):
        return Verdict.FAILED
    return Verdict.REFUSED


async def post(
    connections: Connections, url: str, headers: Mapping[str, str], body: bytes
) -> Answer:
    """Send an event once. Whatever happens is an answer."""
    try:
        response = await connections.post(url, headers, body)
    except Unreachable as error:
        return Answer(Verdict.DOWN, None, str(error).encode())
    except (OSError, TimeoutError) as error:
        return Answer(Verdict.UNCLEAR, None, f"{type(error).__name__}: {error}".encode())
    except ValueError as error:
        return Answer(Verdict.REFUSED, None, str(error).encode())
    verdict = judge(response.status)
    detail = b"" if verdict is Verdict.ACCEPTED else response.detail
    return Answer(verdict, response.status, detail, retry_after(response.retry_after, time.time()))


class Sink:
    """Somewhere to POST events to, which may be down for a while.

    While it is down one event at a time tries it, the others wait: it gets no storm when it
    comes back, and comes to its work within seconds.

    Parameters
    ----------
    name
        ``sink`` or ``dead letters``, in logs and metrics.
    url
        Where to.
    connections
        By which they go.
    stop
        When set, an event that would wait is abandoned.
    backoff_seconds
        First pause after a failure, doubled each time up to 30 s, with jitter.
    longest_probe
        Most seconds between looks at a sink that is down.
    """

    def __init__(
        self,
        name: str,
        url: str,
        connections: Connections,
        stop: asyncio.Event,
        backoff_seconds: float,
        longest_probe: float = LONGEST_PROBE,
    ) -> None:
        self.name, self.url = name, url
        self._connections = connections
        self._stop = stop
        self._backoff = backoff_seconds
        self._longest_probe = longest_probe
        self._accepted = 0
        self._down_since: float | None = None
        self._probes = 1
        self._turn = asyncio.Lock()

    @property
    def down(self) -> bool:
        """Whether it takes no event at all."""
        return self._down_since is not None

    async def send(
        self, headers: Mapping[str, str], body: bytes, retries: int | None
    ) -> Answer | None:
        """Send an event until it is accepted (None), or it has failed for good (the answer).

        With `retries` None an event never fails for good.

        Raises
        ------
        Abandoned
            The source is stopping, and the event is not accepted.
        """
        tries = failures = 0
        stuck = False
        try:
            while True:
                if not self.down:
                    answer = await self._offer(headers, body)
                else:
                    async with self._turn:
                        if not self.down:
                            continue
                        await self._pause(self._probes, longest=self._longest_probe)
                        self._probes += 1
                        answer = await self._offer(headers, body)
                if answer.verdict is Verdict.ACCEPTED:
                    return None
                metrics.SOURCE_RETRIES.labels(self.name, answer.outcome).inc()
                failures += answer.verdict is Verdict.FAILED
                if answer.verdict is Verdict.REFUSED or failures > (retries or 0):
                    if retries is not None:
                        return answer
                    if not stuck:
                        stuck = True
                        metrics.SOURCE_STUCK.labels(self.name).inc()
                        self._complain(headers, answer)
                tries += 1
                if not self.down:
                    await self._pause(tries, at_least=answer.retry_after)
        finally:
            if stuck:
                metrics.SOURCE_STUCK.labels(self.name).dec()

    async def _offer(self, headers: Mapping[str, str], body: bytes) -> Answer:
        """Send an event once, and draw conclusions about the sink."""
        before = self._accepted
        answer = await post(self._connections, self.url, headers, body)
        works = self._accepted > before  # others were accepted meanwhile
        match answer.verdict:
            case Verdict.UNCLEAR:
                answer = answer._replace(verdict=Verdict.FAILED if works else Verdict.DOWN)
            case Verdict.ACCEPTED:
                self._accepted += 1
        if answer.verdict is not Verdict.DOWN:
            self._up()
        elif not works and not self.down:
            self._down_since, self._probes = time.monotonic(), 1
            log.warning(
                "sink is down: events wait, none is lost",
                sink=self.name,
                url=self.url,
                outcome=answer.outcome,
                reason=answer.detail[:200].decode(errors="replace"),
            )
        return answer

    def _up(self) -> None:
        if self._down_since is not None:
            seconds = round(time.monotonic() - self._down_since, 1)
            log.info("sink is up again", sink=self.name, url=self.url, seconds=seconds)
            self._down_since = None

    async def _pause(
        self, tries: int, at_least: float = 0.0, longest: float = LONGEST_PAUSE
    ) -> None:
        seconds = min(longest, self._backoff * 2 ** min(tries - 1, 20))
        seconds = max(at_least, seconds * random.uniform(0.5, 1.0))
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return
        raise Abandoned

    def _complain(self, headers: Mapping[str, str], answer: Answer) -> None:
        log.error(
            "event has no place: it is tried for ever and holds its partition's offset; "
            + (
                "set STAMPEDE_DEAD_LETTER_SINK, or mend the sink"
                if self.name == "sink"
                else "mend the dead-letter sink"
            ),
            id=headers["ce-id"],
            source=headers["ce-source"],
            sink=self.name,
            url=self.url,
            outcome=answer.outcome,
            reason=answer.detail[:200].decode(errors="replace"),
        )


class Delivery:
    """Two sinks, and the way from the one to the other.

    Parameters
    ----------
    sink, dead_letters
        Without dead letters an event is tried at the sink for ever.
    retries
        Failures of an event after the first that make it a dead letter.
    """

    def __init__(self, sink: Sink, dead_letters: Sink | None, retries: int) -> None:
        self._sink = sink
        self._dead_letters = dead_letters
        self._retries = retries

    @property
    def down(self) -> bool:
        """Whether events can at present go nowhere."""
        return self._sink.down

    async def deliver(self, headers: Mapping[str, str], record: Record) -> None:
        """Return when the record's event is at one of the sinks.

        Raises
        ------
        Abandoned
            The source is stopping and it is at neither.
        """
        retries = self._retries if self._dead_letters else None
        answer = await self._sink.send(headers, record.value, retries)
        if answer is None or self._dead_letters is None:
            metrics.SOURCE_EVENTS.labels("accepted").inc()
            return
        await self._dead_letters.send(
            {**headers, **extension_headers(error_of(self._sink.url, answer))}, record.value, None
        )
        metrics.SOURCE_EVENTS.labels("dead-lettered").inc()
        log.warning(
            "dead-lettered",
            id=headers["ce-id"],
            source=headers["ce-source"],
            outcome=answer.outcome,
            reason=answer.detail[:200].decode(errors="replace"),
            bytes=len(record.value),
        )


def error_of(url: str, answer: Answer) -> dict[str, str]:
    """The extensions that Knative gives a dead letter; two of them only after an answer."""
    error = {"knativeerrordest": url}
    if answer.status is not None:
        error["knativeerrorcode"] = str(answer.status)
        error["knativeerrordata"] = base64.b64encode(answer.detail).decode()
    return error


def retry_after(value: str | None, now: float) -> float:
    """Seconds that a Retry-After header asks for (RFC 9110, 10.2.3), 300 at most; 0 for none."""
    if not value:
        return 0.0
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(value).timestamp() - now
        except ValueError:
            return 0.0
    return min(max(seconds, 0.0), LONGEST_RETRY_AFTER)
