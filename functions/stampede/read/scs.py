"""The IVOA's Simple Cone Search 1.03, for TOPCAT, pyvo and other such clients.

https://www.ivoa.net/documents/latest/ConeSearch.html
"""

from math import isfinite

from starlette.requests import Request
from starlette.responses import Response

from stampede.errors import StampedeError
from stampede.read import sky
from stampede.read.cone import answer
from stampede.read.cone_search import Cone
from stampede.read.cone_writers import votable_writer
from stampede.read.errors import BadParameter
from stampede.read.votable import MEDIA_TYPE, error_document

NAMES = ("RA", "DEC", "SR")


async def get_cone(request: Request) -> Response:
    """The objects within SR degrees of RA, DEC; names in any case, other parameters ignored.

    A radius of 0 asks for the columns alone. As the standard says, an error is a VOTable with an
    INFO named ``Error``, and its status is 200.
    """
    try:
        cone = _cone(request)
        if not cone.radius:
            writer = votable_writer()
            return Response(writer.end(), media_type=MEDIA_TYPE)
        return await answer(request, cone, votable_writer(), "vot")
    except StampedeError as error:
        if error.status not in (400, 429, 503):
            raise
        headers = {"Cache-Control": "no-store"}
        return Response(error_document(error.message), 200, headers, MEDIA_TYPE)


def _cone(request: Request) -> Cone:
    """The cone that the parameters name, in decimal degrees. Raises `BadParameter`."""
    query = {name.upper(): value for name, value in request.query_params.multi_items()}
    numbers = []
    for name in NAMES:
        if name not in query:
            raise BadParameter(name, f"{name} is missing: RA, DEC and SR are in decimal degrees")
        try:
            numbers.append(float(query[name]))
        except ValueError:
            numbers.append(float("nan"))
        if not isfinite(numbers[-1]):
            raise BadParameter(name, f"{name} must be a number of degrees: {query[name][:40]!r}")
    ra, dec, radius = numbers
    if not (0 <= ra <= 360 and -90 <= dec <= 90 and 0 <= radius <= sky.FULL):
        raise BadParameter("SR", "RA must be from 0 to 360, DEC from -90 to 90, SR from 0 to 180")
    return Cone(sky.Place(ra % 360, dec), radius)
