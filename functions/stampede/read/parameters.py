"""Query parameters and lists of ids, checked; anything else is a 400 (`BadParameter`)."""

import json
import re
from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from starlette.datastructures import QueryParams
from starlette.requests import Request

from stampede.alerts import surveys
from stampede.alerts.columns import KINDS
from stampede.errors import TooLarge
from stampede.read.conditional import preferred
from stampede.read.errors import BadParameter

Choice = TypeVar("Choice", bound=StrEnum)

_OBJECT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")
_HEADERS = {"id", "alert_id", "candid", "diaSourceId", "object_id", "objectId", "diaObjectId"}
_BYTES_PER_ID = 68


def alert_id(text: object, parameter: str = "alert_id") -> int:
    """A candid or diaSourceId: a positive 64-bit integer, as text or number."""
    digits = str(text)
    if digits.isascii() and digits.isdigit() and 0 < (number := int(digits[:20])) < 1 << 63:
        return number
    raise BadParameter(parameter, f"not an alert id (a 64-bit integer): {digits[:40]!r}")


def object_id(text: object, parameter: str = "object_id") -> str:
    """An objectId, diaObjectId or ssObjectId: letters, digits and ``_ . + -``, up to 64."""
    if _OBJECT_ID.fullmatch(str(text)):
        return str(text)
    raise BadParameter(parameter, f"not an object id: {str(text)[:40]!r}")


def choice(query: QueryParams, name: str, kind: type[Choice], default: Choice) -> Choice:
    """The member of the enumeration `kind` that the parameter names."""
    return kind(one_of(query.get(name, default), name, tuple(kind)))


def one_of(text: str, name: str, choices: Collection[str]) -> str:
    """`text`, if it is one of the choices."""
    if text in choices:
        return text
    raise BadParameter(name, f"must be one of {', '.join(choices)}: {text[:40]!r}")


def survey(query: QueryParams) -> str | None:
    """The parameter `survey`; None if it is absent."""
    return one_of(query["survey"], "survey", surveys.names()) if "survey" in query else None


def cutout_kind(text: str) -> str:
    """One of `KINDS`."""
    return one_of(text, "kind", KINDS)


def flag(query: QueryParams, name: str) -> bool | None:
    """true or false; None if the parameter is absent."""
    text = query.get(name)
    values = {None: None, "true": True, "1": True, "false": False, "0": False}
    if text is not None and text not in values:
        raise BadParameter(name, f"must be true or false: {text[:40]!r}")
    return values[text]


def number(query: QueryParams, name: str, low: float, high: float) -> float | None:
    """A number from `low` to `high`; None if the parameter is absent."""
    text = query.get(name)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise BadParameter(name, f"must be a number from {low:g} to {high:g}: {text[:40]!r}")
    return value


def wanted_format(request: Request, types: dict[str, str]) -> str:
    """The name of a format in `types` (name to media type, the default first).

    The parameter `format` or DALI's RESPONSEFORMAT (a name or a media type) decides, otherwise
    Accept. A client that accepts none of the formats gets the default.
    """
    plain = {media_type.partition(";")[0]: name for name, media_type in types.items()}
    for key, text in request.query_params.items():
        if key.lower() in ("format", "responseformat"):
            wanted = text.lower().partition(";")[0].strip()
            if wanted in types:
                return wanted
            if wanted in plain:
                return plain[wanted]
            raise BadParameter(key, f"must be one of {', '.join(types)}: {text[:40]!r}")
    accepted = preferred(request.headers.get("accept", "*/*"), plain)
    return plain[accepted] if accepted else next(iter(types))


def alert_ids(body: bytes, most: int) -> np.ndarray:
    """The alert ids of a body, each once, ascending; int64."""
    ids = (alert_id(text, "ids") for text in _ids(body, most))
    return np.unique(np.fromiter(ids, np.int64))


def object_ids(body: bytes, most: int) -> pa.StringArray:
    """The object ids of a body, each once, ascending."""
    ids = (object_id(text, "ids") for text in _ids(body, most))
    unique = pc.unique(pa.array(ids, pa.string()))
    return unique.take(pc.sort_indices(unique))


def most_bytes(most: int) -> int:
    """Most bytes of a body with `most` ids."""
    return most * _BYTES_PER_ID + 1024


def _ids(body: bytes, most: int) -> Iterator[object]:
    """The ids in a body: ``{"ids": […]}``, or text separated by commas and white space."""
    ids = _from_json(body) if body.lstrip()[:1] in (b"{", b"[") else _from_text(body)
    count = 0
    for count, text in enumerate(ids, 1):
        if count > most:
            raise TooLarge(f"more than {most} ids: split the query")
        yield text
    if not count:
        raise BadParameter("ids", "the body holds no ids: send JSON or one id per line")


def _from_json(body: bytes) -> Iterator[object]:
    try:
        ids = json.loads(body)["ids"]
    except (ValueError, KeyError, TypeError, RecursionError):
        ids = None
    if not isinstance(ids, list):
        raise BadParameter("ids", 'the body must be JSON like {"ids": ["697251920015010010"]}')
    return iter(ids)


def _from_text(body: bytes) -> Iterator[str]:
    """Ids separated by commas, quotes and white space, after a column's name or without one."""
    words = (m.group().decode("latin-1") for m in re.finditer(rb'[^\s,;"]+', body))
    first = next(words, None)
    if first is not None and first not in _HEADERS:
        yield first
    yield from words
