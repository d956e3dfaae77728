"""The IVOA's Simple Cone Search 1.03, for TOPCAT, pyvo and other such clients.

https://www.ivoa.net/documents/latest/ConeSearch.html
"""

import re
from collections.abc import Iterator, Mapping
from math import isfinite

import pyarrow as pa
from starlette.requests import Request
from starlette.responses import Response

from stampede.errors import StampedeError
from stampede.lookup import sky
from stampede.lookup.cone_search import Cone
from stampede.lookup.errors import BadParameter
from stampede.read.api.cone import objects_around, respond
from stampede.read.formats.cone_writers import votable_writer
from stampede.read.formats.votable import MEDIA_TYPE, VOTableWriter, error_document
from stampede.read.service import service_of

NAMES = ("RA", "DEC", "SR")
_MAXREC = re.compile(r"[0-9]{1,18}")


async def get_cone(request: Request) -> Response:
    """The objects within SR degrees of RA, DEC; names in any case, other parameters ignored.

    A radius of 0 asks for the columns alone, and MAXREC (DALI 1.1) for so many objects at most. As
    the standard says, an error is a VOTable with an INFO named ``Error``, and its status is 200.
    Beside the one RESOURCE with the table that it knows is one of type ``meta``, the service with
    the links of each row: so DataLink 1.1 asks, and clients take it from no other place.
    """
    try:
        query = {name.upper(): value for name, value in request.query_params.multi_items()}
        cone, most = _cone(query), _most(query)
        writer = votable_writer(service_of(request).access.proxies.origin_of(request))
        one_more = None if most is None else most + 1  # tells that there are more
        found = objects_around(service_of(request), cone, most=one_more)
        if not cone.radius or most == 0:
            found, writer.overflow = iter(()), most == 0
        elif most is not None:
            found = _first(found, most, writer)
        return await respond(request, found, writer, "vot")
    except StampedeError as error:
        if error.status not in (400, 429, 503):
            raise
        headers = {"Cache-Control": "no-store"}
        return Response(error_document(error.message), 200, headers, MEDIA_TYPE)


def _cone(query: Mapping[str, str]) -> Cone:
    """The cone that the parameters name, in decimal degrees. Raises `BadParameter`."""
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


def _most(query: Mapping[str, str]) -> int | None:
    """How many objects the client wants at most. Raises `BadParameter`."""
    if (text := query.get("MAXREC")) is None:
        return None
    if not _MAXREC.fullmatch(text):
        raise BadParameter("MAXREC", f"MAXREC must be a number of rows: {text[:40]!r}")
    return int(text)


def _first(found: Iterator[pa.Table], most: int, writer: VOTableWriter) -> Iterator[pa.Table]:
    """The first `most` rows; tells the writer if there are more, and then reads no further."""
    for table in found:
        writer.overflow = table.num_rows > most
        yield table[:most]
        most -= table.num_rows
        if writer.overflow:
            return
