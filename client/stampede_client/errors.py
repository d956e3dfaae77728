"""Errors of the client. Each message names the URL or the value, and says what to do."""


class StampedeClientError(Exception):
    """The request failed.

    Attributes
    ----------
    problem
        The name of the server's problem document, such as ``unknown-alert``; empty without one.
    """

    def __init__(self, message: str, problem: str = "") -> None:
        super().__init__(message)
        self.problem = problem


class BadInput(StampedeClientError):
    """An id, a position or another argument cannot be used."""


class NotFound(StampedeClientError):
    """The server stores no such alert, object or image."""


class Gone(StampedeClientError):
    """The image or packet is past its retention and has been deleted."""


class Damaged(StampedeClientError):
    """The store has lost the bytes, or has other bytes than were stored."""


class AccessDenied(StampedeClientError):
    """The server demands a token, or one with more rights."""


class Unavailable(StampedeClientError):
    """The server did not answer, or is too busy, after all attempts."""


class Incomplete(StampedeClientError):
    """The response may lack something that is stored.

    A server's response raises it only with ``connect(strict=True)``, a reader of the bucket unless
    ``errors="skip"`` is given.
    """


class IncompleteWarning(UserWarning):
    """The response may lack something that is stored: not all of it can be read or verified."""


class MissingWarning(UserWarning):
    """Of some ids that were asked for the server stores nothing."""


class UnexpectedResponse(StampedeClientError):
    """The response is not one that a Stampede server gives, or is not whole."""
