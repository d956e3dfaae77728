"""Delivers an event to the sink, or to the dead-letter sink if the event fails for good."""

from collections.abc import Mapping
from urllib.parse import unquote

from stampede.errors import StampedeError, Undecodable
from stampede.events.cloudevents.kafka_record import Record, extension_headers
from stampede.events.delivery.response import SinkResponse, Verdict, error_extensions
from stampede.events.delivery.sink import Abandoned, Sink
from stampede.telemetry import source_metrics
from stampede.telemetry.logs import get_logger

log = get_logger()


class NoPlace(StampedeError):
    """An event is refused, and so is the dead letter that it should become."""

    name = "no-place"


class Delivery:
    """Delivers records: to the sink, or to the dead-letter sink after failures.

    Parameters
    ----------
    sink, dead_letters
        Without a dead-letter sink an event is tried at the sink for ever.
    retries
        Failures of an event after the first before it becomes a dead letter.
    letter_retries
        Failures of a dead letter after the first before `NoPlace` is raised; None: never.
    """

    def __init__(
        self,
        sink: Sink,
        dead_letters: Sink | None,
        retries: int,
        letter_retries: int | None = None,
    ) -> None:
        self._sink = sink
        self._dead_letters = dead_letters
        self._retries = retries
        self._letter_retries = letter_retries

    @property
    def down(self) -> bool:
        """Whether the sink is down: it accepts no event."""
        return self._sink.down

    async def deliver(self, headers: Mapping[str, str], record: Record) -> SinkResponse | None:
        """Return when one of the sinks has accepted the record's event.

        Returns
        -------
        SinkResponse or None
            Why the event is a dead letter now; None if it is not.

        Raises
        ------
        Abandoned
            The source is stopping, and neither sink has accepted the event.
        NoPlace
            The dead-letter sink refuses it.
        """
        retries = self._retries if self._dead_letters else None
        try:
            response = await self._sink.send(headers, record.value, retries)
        except Abandoned:
            raise
        except Exception as error:  # a bug that this event meets: the others must go on
            if self._dead_letters is None:
                raise
            log.exception("event cannot be sent", id=headers["ce-id"], source=headers["ce-source"])
            response = SinkResponse(Verdict.REFUSED, None, repr(error).encode(errors="replace"))
        if response is None or self._dead_letters is None:
            source_metrics.SOURCE_EVENTS.labels("accepted").inc()
            return None
        await self.dead_letter(self._dead_letters, headers, record, response)
        return response

    async def refuse(self, headers: Mapping[str, str], record: Record, reason: str) -> SinkResponse:
        """Send an event to the dead-letter sink, because the sender knows what is wrong with it.

        Raises what `deliver` raises. There must be a dead-letter sink.
        """
        response = SinkResponse(Verdict.REFUSED, Undecodable.status, reason.encode())
        if self._dead_letters:
            await self.dead_letter(self._dead_letters, headers, record, response)
        return response

    async def dead_letter(
        self, sink: Sink, headers: Mapping[str, str], record: Record, response: SinkResponse
    ) -> None:
        """Return when the dead-letter sink has accepted an event. Raises as `deliver`."""
        extensions = extension_headers(error_extensions(self._sink.url, response))
        letter = {**headers, **extensions}
        refusal = await sink.send(letter, record.value, self._letter_retries)
        if refusal:
            raise NoPlace(
                f"{record} is refused ({response.reason}), and {sink.url} does not take it as a "
                f"dead letter: {refusal.outcome}: {refusal.reason}"
            )
        source_metrics.SOURCE_EVENTS.labels("dead-lettered").inc()
        log.warning(
            "dead-lettered",
            id=headers["ce-id"],
            source=headers["ce-source"],
            **({"file": unquote(headers["ce-file"])} if "ce-file" in headers else {}),
            outcome=response.outcome,
            reason=response.reason,
            bytes=len(record.value),
        )
