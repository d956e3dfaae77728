"""What readers may ask for: ids, choices, numbers, lists of ids. Everything else is a 400."""

import json
import re
from collections.abc import Iterator
from enum import StrEnum
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from starlette.datastructures import QueryParams
from starlette.requests import Request

from stampede.errors import TooLarge
from stampede.read.conditional import preferred
from stampede.read.problems import BadParameter

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
    """One of the members of `kind`."""
    text = query.get(name, default)
    try:
        return kind(text)
    except ValueError:
        raise BadParameter(name, f"must be one of {', '.join(kind)}: {text[:40]!r}") from None


def flag(query: QueryParams, name: str) -> bool | None:
    """true or false; None where it is not asked for."""
    text = query.get(name)
    known = {None: None, "true": True, "1": True, "false": False, "0": False}
    if text is not None and text not in known:
        raise BadParameter(name, f"must be true or false: {text[:40]!r}")
    return known[text]


def number(query: QueryParams, name: str, low: float, high: float) -> float | None:
    """A number from `low` to `high`; None where it is not asked for."""
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
    """A format's name, out of `types` (name to media type, the default first).

    By `format` or DALI's RESPONSEFORMAT (a name or a media type), else by Accept; a reader that
    accepts none of them gets the default.
    """
    plain = {media_type.partition(";")[0]: name for name, media_type in types.items()}
    for key, text in request.query_params.items():
        if key.lower() in ("format", "responseformat"):
            asked = text.lower().partition(";")[0].strip()
            if asked in types:
                return asked
            if asked in plain:
                return plain[asked]
            raise BadParameter(key, f"must be one of {', '.join(types)}: {text[:40]!r}")
    liked = preferred(request.headers.get("accept", "*/*"), plain)
    return plain[liked] if liked else next(iter(types))


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
    """How long a body with `most` ids may be."""
    return most * _BYTES_PER_ID + 1024


def _ids(body: bytes, most: int) -> Iterator[object]:
    """The ids as they were sent: ``{"ids": […]}``, or text parted by commas and white space."""
    ids = _from_json(body) if body.lstrip()[:1] in (b"{", b"[") else _from_text(body)
    count = 0
    for count, text in enumerate(ids, 1):
        if count > most:
            raise TooLarge(f"more than {most} ids: ask in parts")
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
    """Ids parted by commas, quotes and white space; a column's name at the start is skipped."""
    words = (m.group().decode("latin-1") for m in re.finditer(rb'[^\s,;"]+', body))
    first = next(words, None)
    if first is not None and first not in _HEADERS:
        yield first
    yield from words
