"""Tables of links, and the services that give them, as DataLink 1.1 has it.

https://www.ivoa.net/documents/DataLink/20231215/
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa

from stampede.read.formats.completeness import NONE, Completeness
from stampede.read.formats.votable import Service, VOTableWriter

MEDIA_TYPE = "application/x-votable+xml;content=datalink"
STANDARD_ID = "ivo://ivoa.net/std/DataLink#links-1.1"
ALERTS, OBJECTS = "/v1/links/alerts", "/v1/links/objects"


class Link(NamedTuple):
    """A row of the table of links.

    Attributes
    ----------
    ID
        The identifier as the client sent it.
    error_message
        Why there is no link; then `semantics` is all that the row has beside it.
    semantics
        A term of http://www.ivoa.net/rdf/datalink/core.
    content_qualifier
        A term of http://www.ivoa.net/rdf/product-type.
    local_semantics
        What tells links of equal semantics apart: the same for each ID.
    """

    ID: str
    semantics: str = "#this"
    access_url: str | None = None
    description: str | None = None
    content_type: str | None = None
    content_qualifier: str | None = None
    local_semantics: str | None = None
    error_message: str | None = None


def _text(name: str, doc: str, null: bool = True) -> pa.Field:
    return pa.field(name, pa.string(), null, {"doc": doc})


_LINKS = pa.schema(
    [
        _text("ID", "the identifier that was asked for", False),
        _text("access_url", "address of the linked thing"),
        _text("service_def", "the service that gives it"),
        _text("error_message", "why there is no link"),
        _text("description", "what it is"),
        _text("semantics", "what it is to the identified thing", False),
        _text("content_type", "media type"),
        pa.field("content_length", pa.int64(), True, {"doc": "size", "unit": "byte"}),
        _text("content_qualifier", "kind of product"),
        _text("local_semantics", "the same for the same links of other identifiers"),
    ]
)
UCDS = {
    "ID": "meta.id;meta.main",
    "access_url": "meta.ref.url",
    "service_def": "meta.ref",
    "error_message": "meta.code.error",
    "description": "meta.note",
    "semantics": "meta.code",
    "content_type": "meta.code.mime",
    "content_length": "phys.size;meta.file",
    "content_qualifier": "meta.code",
    "local_semantics": "meta.id.assoc",
}


def document(links: Iterable[Link], overflow: bool, reasons: Sequence[str]) -> bytes:
    """The response with these links.

    Parameters
    ----------
    overflow
        There were more identifiers.
    reasons
        Why links may be lacking.
    """
    rows = pa.Table.from_pylist([link._asdict() for link in links], _LINKS)
    writer = VOTableWriter("links", _LINKS, UCDS, infos={"standardID": STANDARD_ID})
    writer.overflow = overflow
    return writer.add(rows) + writer.end(Completeness(NONE, NONE, reasons))


def services_of_alerts(origin: str, column: str) -> Sequence[Service]:
    """The service with the links of alerts, whose ids are in a column; none without `origin`."""
    return _services("alert", "cutouts and packet of the alert of a point", origin + ALERTS, column)


def services_of_objects(origin: str, column: str) -> Sequence[Service]:
    """As `services_of_alerts`, of objects."""
    text = "light curve and cutouts of an object"
    return _services("object", text, origin + OBJECTS, column)


def _services(name: str, text: str, url: str, column: str) -> Sequence[Service]:
    if url.startswith("/"):
        return ()  # the standard has no relative addresses
    return (Service(f"links of the {name}", text, url, column, STANDARD_ID, MEDIA_TYPE),)
