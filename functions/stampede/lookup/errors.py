"""Errors of look-ups: what is asked for is not there, not whole, or not named well."""

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


class DamagedPacket(Damaged):
    """The store has lost the packet of an alert, or has other bytes than were stored."""

    name, status = "damaged-packet", 502


class UnknownObject(NotFound):
    """No detection of this object is stored."""

    name = "unknown-object"
