"""What can be wrong with a question: errors that only reading knows."""

from stampede.errors import BadQuery, NotFound, StampedeError


class BadParameter(BadQuery):
    """A parameter cannot be used; `parameter` names it."""

    name = "bad-parameter"

    def __init__(self, parameter: str, message: str) -> None:
        super().__init__(message)
        self.parameter = parameter


class AmbiguousAlert(BadParameter):
    """Both surveys have an alert of this id: the query must say which is meant."""

    name = "ambiguous-alert"


class UnknownAlert(NotFound):
    """No alert of this id is stored."""

    name = "unknown-alert"


class NoSuchCutout(NotFound):
    """The alert is stored, and the survey sent no such cutout with it."""

    name = "no-such-cutout"


class NoThumbnail(NotFound):
    """The alert is stored, and no thumbnail of it has been drawn yet."""

    name = "no-thumbnail"


class Gone(StampedeError):
    """The image was stored, and is deleted since: it is older than images are kept."""

    name, status = "gone", 410


class UnknownObject(NotFound):
    """No detection of this object is stored."""

    name = "unknown-object"


class TooManyQueries(StampedeError):
    """As many large queries are under way as are allowed at once: try again later."""

    name, status = "too-many-queries", 429
