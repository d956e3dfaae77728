"""Parameters as DALI has them: in the query or in a form, names in any case, files inline.

https://www.ivoa.net/documents/DALI/20170517/.
"""

from collections.abc import Iterator
from email.parser import BytesParser
from email.policy import HTTP
from typing import NamedTuple
from urllib.parse import parse_qsl

from starlette.requests import Request

from stampede.errors import TooLarge
from stampede.events.http.byte_budget import Budget
from stampede.lookup.errors import BadParameter

MOST_PARAMETERS = 100


class Form(NamedTuple):
    """Parameters by name in upper case; those that may come more than once as they came.

    Attributes
    ----------
    files
        Parts of a form that are files, by name.
    """

    values: dict[str, str]
    repeated: list[tuple[str, str]]
    files: dict[str, bytes]


async def form_of(request: Request, most: int, budget: Budget) -> Form:
    """The parameters of a request, of `most` bytes at most.

    Raises `BadParameter`, `TooLarge`; `Overloaded` if `budget` has no room for the body.
    """
    pairs = [*request.query_params.multi_items()]
    files: dict[str, bytes] = {}
    kind = request.headers.get("content-type", "")
    if request.method == "POST":
        body = bytearray()
        try:
            async for part in request.stream():
                if len(body) + len(part) > most:
                    raise TooLarge(f"the request takes more than {most >> 20} MB")
                budget.take(len(part), len(body))
                body += part
            if kind.lower().startswith("multipart/form-data"):
                for name, value, is_file in _parts(kind, bytes(body)):
                    if is_file:
                        files[name] = value
                    else:
                        pairs.append((name, value.decode("utf-8", "replace")))
            else:
                pairs += _urlencoded(body)
        finally:
            budget.give_back(len(body))
    if len(pairs) > MOST_PARAMETERS:
        raise BadParameter("parameters", f"more than {MOST_PARAMETERS} parameters")
    named = [(name.upper(), value) for name, value in pairs]
    return Form(dict(named), named, files)


def _urlencoded(body: bytearray) -> list[tuple[str, str]]:
    try:
        text = body.decode("utf-8")
        return parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_PARAMETERS)
    except ValueError:
        raise BadParameter("body", "the body is no form of parameters, in UTF-8") from None


def _parts(kind: str, body: bytes) -> Iterator[tuple[str, bytes, bool]]:
    """Name and content of each part of a form, and whether it is a file (RFC 7578)."""
    head = b"Content-Type: " + kind.encode("latin-1", "replace") + b"\r\n\r\n"
    message = BytesParser(policy=HTTP).parsebytes(head + body)
    if not message.is_multipart():
        raise BadParameter("body", "the body is no multipart/form-data: its boundary is missing")
    for part in message.iter_parts():
        name = part.get_param("name", header="content-disposition")
        content = part.get_payload(decode=True)
        if not isinstance(name, str) or not isinstance(content, bytes):
            raise BadParameter("body", "a part of the form has no name")
        yield name, content, part.get_filename() is not None
