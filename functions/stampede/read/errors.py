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
    """The image is past its retention and has been deleted."""

    name, status = "gone", 410


class DamagedImage(Damaged):
    """The store has lost the image, or has other bytes than were stored."""

    name, status = "damaged-image", 502


class UnknownObject(NotFound):
    """No detection of this object is stored."""

    name = "unknown-object"


class TooManyQueries(StampedeError):
    """The largest allowed number of large queries is running: try again later."""

    name, status = "too-many-queries", 429
