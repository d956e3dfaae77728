"""Errors are data: a stable name, an HTTP status, and a sentence that says what to do.

The status is the retry contract of a function (Knative Eventing delivery): 404, 408, 409, 429
and everything from 500 up are tried again; any other status from 300 up sends the event to the
dead letters at once.
"""


class StampedeError(Exception):
    """What Stampede can say about a failure.

    Attributes
    ----------
    name
        Stable identifier, the last part of the RFC 9457 ``type``.
    status
        HTTP status that a function or the read service answers with.
    """

    name = "internal"
    status = 500

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NotAnEvent(StampedeError):
    """The request is not a CloudEvent, or lacks a required attribute."""

    name, status = "not-an-event", 400


class Undecodable(StampedeError):
    """The bytes are not an alert of any schema known here."""

    name, status = "undecodable", 400


class Unusable(StampedeError):
    """The alert decodes but lacks what storing it needs, such as an id or a time."""

    name, status = "unusable", 422


class TooLarge(StampedeError):
    """The alert is larger than Stampede takes."""

    name, status = "too-large", 413


class StoreDown(StampedeError):
    """The object store did not answer, or not as it should: try again."""

    name, status = "store-down", 503


class Overloaded(StampedeError):
    """There is more to do than there is room for: come again in a moment."""

    name, status = "overloaded", 429


class Damaged(StampedeError):
    """An object is not what was stored under its name: see to the disks."""

    name, status = "damaged", 500


class SchemaRegistryDown(StampedeError):
    """The schema registry did not answer, or not as it should: try again."""

    name, status = "schema-registry-down", 503


class BrokerDown(StampedeError):
    """The Broker did not take an event in time: try again."""

    name, status = "broker-down", 503


class SubscriberDown(StampedeError):
    """Not every subscriber of an event took it: try again."""

    name, status = "subscriber-down", 500  # this event's failure, not the whole Broker's


class NotFound(StampedeError):
    """There is nothing of that name."""

    name, status = "not-found", 404


class BadQuery(StampedeError):
    """A parameter of a read request is wrong."""

    name, status = "bad-query", 400


class SetupError(StampedeError):
    """Something this machine lacks, or a setting that cannot work. Shown as one line."""

    name = "setup"
