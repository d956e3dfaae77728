"""Errors that only the read service raises."""

from stampede.errors import BadQuery, Damaged, NotFound, StampedeError


class BadParameter(BadQuery):
    """A parameter cannot be used; `parameter` names it."""

    name = "bad-parameter"

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class AmbiguousAlert(BadParameter):
    """More than one survey has an alert of this id; the query must name the survey."""

    name = "ambiguous-alert"


class UnknownAlert(NotFound):
    """No alert of this id is stored."""

    name = "unknown-alert"


class NoSuchCutout(NotFound):
    """The alert is stored, but the survey sent no cutout of this kind with it."""

    name = "no-such-cutout"


class NoThumbnail(NotFound):
    """The alert is stored, but its thumbnail has not been drawn yet."""

    name = "no-thumbnail"


class Gone(StampedeError):
    """The image or packet is past its retention and has been deleted."""

    name, status = "gone", 410


class DamagedImage(Damaged):
    """The store has lost the image, or has other bytes than were stored."""

    name, status = "damaged-image", 502


class NoPacket(NotFound):
    """The alert is stored, but not the message as it came."""

    name = "no-packet"


class BrokenOff(Damaged):
    """A stream lacks what cannot be read, and its format has no place to say so."""

    name = "broken-off"


class DamagedPacket(Damaged):
    """The store has lost the packet of an alert, or has other bytes than were stored."""

    name, status = "damaged-packet", 502


class UnknownObject(NotFound):
    """No detection of this object is stored."""

    name = "unknown-object"


class TooManyQueries(StampedeError):
    """The largest allowed number of large queries is running: try again later."""

    name, status = "too-many-queries", 429


class DoorError(StampedeError):
    """The client may not ask this, or not now; `headers` tell it what to do."""

    def __init__(self, message: str, headers: dict[str, str]) -> None:
        super().__init__(message)
        self.headers = headers


class TooManyRequests(DoorError):
    """The client asks more often than it may."""

    name, status = "too-many-requests", 429

    def __init__(self, scope: str, seconds: int) -> None:
        message = f"too many requests for {scope}: try again in {seconds} s"
        super().__init__(message, {"Retry-After": str(seconds)})


class Unauthorized(DoorError):
    """The route needs a token (RFC 6750); `sent` says whether there was one."""

    name, status = "unauthorized", 401

    def __init__(self, message: str, sent: bool) -> None:
        error = ', error="invalid_token"' if sent else ""
        challenge = {"WWW-Authenticate": f'Bearer realm="stampede"{error}'}
        super().__init__(f"{message}: send Authorization: Bearer TOKEN", challenge)


class Forbidden(DoorError):
    """The token does not open routes of this scope."""

    name, status = "forbidden", 403

    def __init__(self, scope: str) -> None:
        challenge = f'Bearer realm="stampede", error="insufficient_scope", scope="{scope}"'
        super().__init__(f"the token has no scope {scope!r}", {"WWW-Authenticate": challenge})
