"""Errors that only the read service raises."""

from stampede.errors import Damaged, StampedeError


class BrokenOff(Damaged):
    """A stream lacks what cannot be read, and its format has no place to say so."""

    name = "broken-off"


class TooManyQueries(StampedeError):
    """The largest allowed number of large queries is running: try again later."""

    name, status = "too-many-queries", 429


class NotAcceptable(StampedeError):
    """The client accepts no format that there is (RFC 9110, 15.5.7)."""

    name, status = "not-acceptable", 406


class NotHeld(StampedeError):
    """A client of another server asks for what no store of alerts has, such as a class."""

    name, status = "not-held", 501


class AccessError(StampedeError):
    """The client may not ask this, or not now; `headers` tell it what to do."""

    def __init__(self, message: str, headers: dict[str, str]) -> None:
        super().__init__(message)
        self.headers = headers


class TooManyRequests(AccessError):
    """The client asks more often than it may."""

    name, status = "too-many-requests", 429

    def __init__(self, scope: str, seconds: int) -> None:
        message = f"too many requests for {scope}: try again in {seconds} s"
        super().__init__(message, {"Retry-After": str(seconds)})


class Unauthorized(AccessError):
    """The route needs a token (RFC 6750); `sent` says whether there was one."""

    name, status = "unauthorized", 401

    def __init__(self, message: str, sent: bool) -> None:
        error = ', error="invalid_token"' if sent else ""
        challenge = {"WWW-Authenticate": f'Bearer realm="stampede"{error}'}
        super().__init__(f"{message}: send Authorization: Bearer TOKEN", challenge)


class Forbidden(AccessError):
    """The token does not open routes of this scope."""

    name, status = "forbidden", 403

    def __init__(self, scope: str) -> None:
        challenge = f'Bearer realm="stampede", error="insufficient_scope", scope="{scope}"'
        super().__init__(f"the token has no scope {scope!r}", {"WWW-Authenticate": challenge})
