"""Errors are data: a stable name, an HTTP status, and a sentence that says what to do.

The status tells the sender of an event whether to retry (Knative Eventing delivery): it retries
404, 408, 409, 429 and all from 500 up. Any other status from 300 up makes the event a dead letter
at once.
"""

from collections.abc import Iterable
from typing import Self

from stampede.addresses import shown


class StampedeError(Exception):
    """A failure that Stampede can explain.

    Attributes
    ----------
    name
        Stable identifier, the last part of the RFC 9457 ``type``.
    status
        HTTP status of the response, of a function or of `read`.
    tables
        The tables that lack an alert because of it; empty if all that an event fills lack it.
    """

    name = "internal"
    status = 500
    tables: tuple[str, ...] = ()

    def __init__(self, message: str) -> None:
        # A stranger's names and texts may hold lone surrogates, which no response could carry.
        message = message.encode("utf-8", "backslashreplace").decode("utf-8")
        message = shown(message)  # it goes into logs and answers
        super().__init__(message)
        self.message = message

    def anew(self) -> Self:
        """The same error to raise once more: a raised one holds the frames that it came through."""
        return self.of_tables(self.tables)

    def of_tables(self, tables: Iterable[str]) -> Self:
        """The same error, of these tables."""
        error = type(self)(self.message)
        error.tables = tuple(tables)
        return error


class NotAnEvent(StampedeError):
    """The request is not a CloudEvent, or lacks a required attribute."""

    name, status = "not-an-event", 400


class NotAuthorized(StampedeError):
    """The sender has neither a key nor a token of those that the function accepts."""

    name, status = "not-authorized", 401


class IssuerDown(StampedeError):
    """The issuer of tokens does not answer, and its keys are not known yet: try again."""

    name, status = "issuer-down", 503


class UnknownMode(StampedeError):
    """The request carries CloudEvents in a way that Stampede does not accept."""

    name, status = "unknown-mode", 415


class Undecodable(StampedeError):
    """The bytes are not an alert of any schema known here."""

    name, status = "undecodable", 400


class DecoderFailed(StampedeError):
    """DataFusion could not read a batch: check its records one by one."""

    name = "decoder-failed"


class Unusable(StampedeError):
    """The alert decodes but lacks a value that storing it needs, for example an id or a time."""

    name, status = "unusable", 422


class UnknownSurvey(Unusable):
    """The message is an alert of a survey that Stampede does not know, or no alert."""

    name = "unknown-survey"


class TooLarge(StampedeError):
    """The alert is larger than Stampede accepts."""

    name, status = "too-large", 413


class NotInTime(StampedeError):
    """The client did not send its request in time: try again."""

    name, status = "not-in-time", 408


class TooManyHeaders(StampedeError):
    """The request's header is larger than Stampede accepts."""

    name, status = "headers-too-large", 431


class StoreDown(StampedeError):
    """The object store did not answer, or its response was wrong: try again."""

    name, status = "store-down", 503


class StoreRefused(StoreDown):
    """The object store refuses every request: a wrong key, no such bucket. Set it right.

    Functions answer it like `StoreDown`, so that no alert is lost to a wrong setting. A command
    does not try again.
    """


class NoBucket(StoreRefused):
    """The object store has no such bucket: `stampede setup` makes it."""


class Overloaded(StampedeError):
    """Too much is waiting already: try again in a moment."""

    name, status = "overloaded", 429


class ClockWrong(StampedeError):
    """The clocks of this machine and of the object store differ: set the wrong one.

    What must not be done at a wrong time, such as deleting by age, is not done.
    """

    name, status = "clock-wrong", 500


class Damaged(StampedeError):
    """An object is lost or is not what was stored under its key: check the disks.

    The status says that another attempt is of no use: `reconcile` sends the event of an object
    again once the object is repaired.
    """

    name, status = "damaged", 422


class SchemaRegistryDown(StampedeError):
    """The schema registry did not answer, or its response was wrong: try again."""

    name, status = "schema-registry-down", 503


class BrokerDown(StampedeError):
    """The Broker did not accept an event in time: try again."""

    name, status = "broker-down", 503


class SubscriberDown(StampedeError):
    """Not every subscriber accepted the event: try again."""

    name, status = "subscriber-down", 500  # the failure of this event, not of the whole Broker


class NotFound(StampedeError):
    """Nothing has that name."""

    name, status = "not-found", 404


class BadQuery(StampedeError):
    """A parameter of a read request is wrong."""

    name, status = "bad-query", 400


class SetupError(StampedeError):
    """This machine lacks something, or a setting cannot work. Shown as one line."""

    name = "setup"


class NoTopic(SetupError):
    """Kafka has no topic of this name."""
