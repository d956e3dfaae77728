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
    sink
        Takes the events.
    dead_letters
        The sinks of dead letters, by table that the events fill. Without any an event is tried at
        the sink for ever.
    retries
        Failures of an event after the first before it becomes a dead letter.
    letter_retries
        Failures of a dead letter after the first before `NoPlace` is raised; None: never.
    """

    def __init__(
        self,
        sink: Sink,
        dead_letters: Mapping[str, Sink],
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
        """Return when the sink has accepted the record's event, or it is a dead letter.

        A sink may store it in one table and refuse it for another: then it is a dead letter of that
        one alone.

        Returns
        -------
        SinkResponse or None
            Why the event is a dead letter now; None if it is not.

        Raises
        ------
        Abandoned
            The source is stopping, and no sink has accepted the event.
        NoPlace
            The dead-letter sink refuses it.
        """
        retries = self._retries if self._dead_letters else None
        try:
            response = await self._sink.send(headers, record.value, retries)
        except Abandoned:
            raise
        except Exception as error:  # a bug that this event meets: the others must go on
            if not self._dead_letters:
                raise
            log.exception("event cannot be sent", id=headers["ce-id"], source=headers["ce-source"])
            response = SinkResponse(Verdict.REFUSED, None, repr(error).encode(errors="replace"))
        if response is None or not self._dead_letters:
            source_metrics.SOURCE_EVENTS.labels("accepted").inc()
            return None
        await self.dead_letter(headers, record, response)
        return response

    async def refuse(self, headers: Mapping[str, str], record: Record, reason: str) -> SinkResponse:
        """Make an event a dead letter, because the sender knows what is wrong with it.

        Raises what `deliver` raises. There must be a sink of dead letters.
        """
        response = SinkResponse(Verdict.REFUSED, Undecodable.status, reason.encode())
        await self.dead_letter(headers, record, response)
        return response

    async def dead_letter(
        self, headers: Mapping[str, str], record: Record, response: SinkResponse
    ) -> None:
        """Return when an event is a dead letter of each table that lacks it.

        Raises as `deliver`.
        """
        extensions = extension_headers(error_extensions(self._sink.url, response))
        letter = {**headers, **extensions}
        named = [table for table in response.tables if table in self._dead_letters]
        for table in named or self._dead_letters:
            sink = self._dead_letters[table]
            refusal = await sink.send(letter, record.value, self._letter_retries)
            if refusal:
                raise NoPlace(
                    f"{record} is refused ({response.reason}), and {sink.url} does not take it as "
                    f"a dead letter: {refusal.outcome}: {refusal.reason}"
                )
        source_metrics.SOURCE_EVENTS.labels("dead-lettered").inc()
        log.warning(
            "dead-lettered",
            id=headers["ce-id"],
            source=headers["ce-source"],
            **({"file": unquote(headers["ce-file"])} if "ce-file" in headers else {}),
            **({"tables": named} if named else {}),
            outcome=response.outcome,
            reason=response.reason,
            bytes=len(record.value),
        )
