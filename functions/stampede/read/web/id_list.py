"""The ids in the body of a large query, checked before anything is built of them.

A body is bounded in bytes, then counted, then parsed: parsing takes at most a few times the bytes
of the body, whatever they are. ``tests/read/test_limits.py`` measures that.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from stampede.errors import TooLarge
from stampede.lookup.errors import BadParameter
from stampede.read.web import parameters
from stampede.runtime import lazy_arrow_compute as pc

_HEADERS = {"id", "alert_id", "candid", "diaSourceId", "object_id", "objectId", "diaObjectId"}
_BYTES_PER_ID = 68
_JSON = re.compile(rb"\s*[{\[]")
_PLAIN = re.compile(rb"[0-9\s,]+")
_EXAMPLE = 'JSON like {"ids": ["697251920015010010"]}'


def alert_ids(body: bytearray, most: int) -> np.ndarray:
    """The alert ids of a body, each once, ascending; int64."""
    if (plain := _plain_ids(body, most)) is not None:
        return np.unique(plain)
    ids = (parameters.alert_id(text, "ids") for text in _ids(body, most))
    return np.unique(np.fromiter(ids, np.int64))


def _plain_ids(body: bytearray, most: int) -> np.ndarray | None:
    """The alert ids of a text that has digits and separators only; None if one needs a closer look.

    Arrow reads them without the interpreter's lock, so other requests do not wait meanwhile.
    """
    if not _PLAIN.fullmatch(body):
        return None
    (words,) = pc.ascii_split_whitespace(pa.array([body.replace(b",", b" ").strip().decode()]))
    texts = words.values
    if len(texts) > most:
        return None
    try:
        ids = texts.cast(pa.int64())
    except pa.ArrowInvalid:  # too large, or no id at all
        return None
    numbers = np.asarray(ids)
    if numbers.min() < 1 or not ids.cast(pa.string()).equals(texts):  # 0, or leading zeros
        return None
    return numbers


def object_ids(body: bytearray, most: int) -> pa.StringArray:
    """The object ids of a body, each once, ascending."""
    ids = (parameters.object_id(text, "ids") for text in _ids(body, most))
    unique = pc.unique(pa.array(ids, pa.string()))
    return unique.take(pc.sort_indices(unique))


def most_bytes(most: int) -> int:
    """Most bytes of a body with `most` ids."""
    return most * _BYTES_PER_ID + 1024


def _ids(body: bytearray, most: int) -> Iterator[object]:
    """The ids in a body: ``{"ids": […]}``, or text separated by commas and white space."""
    ids = _from_json(body, most) if _JSON.match(body) else _from_text(body)
    count = 0
    for count, text in enumerate(ids, 1):
        if count > most:
            raise _too_many(most)
        yield text
    if not count:
        raise BadParameter("ids", "the body holds no ids: send JSON or one id per line")


def _from_json(body: bytearray, most: int) -> Iterator[object]:
    # Each value of JSON needs a comma or a bracket. Counting both first bounds what the parser may
    # build: 68 MB of "{}," would become 1.6 GB of dictionaries.
    if not body.isascii():
        raise BadParameter("ids", f"ids are ASCII: the body must be {_EXAMPLE}")
    if body.count(b",") > most:
        raise _too_many(most)
    if body.count(b"{") + body.count(b"[") > 8:
        raise BadParameter("ids", f"the body must not be nested, but {_EXAMPLE}")
    try:
        query = json.loads(body, object_pairs_hook=_members)
    except (ValueError, RecursionError):  # ValueError: also an integer of thousands of digits
        query = None
    if not isinstance(query, dict):
        raise BadParameter("ids", f"the body must be {_EXAMPLE}")
    if unknown := sorted(query.keys() - {"ids"}):
        raise BadParameter("ids", f"unknown field {unknown[0][:40]!r}: the only field is 'ids'")
    if not isinstance(query.get("ids"), list):
        raise BadParameter("ids", f"the body must be {_EXAMPLE}")
    return iter(query["ids"])


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The members of a JSON object. Raises `BadParameter` if a name occurs twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise BadParameter("ids", "a field occurs twice in the body")
    return members


def _too_many(most: int) -> TooLarge:
    return TooLarge(f"more than {most} ids: split the query")


def _from_text(body: bytearray) -> Iterator[str]:
    """Ids separated by commas, quotes and white space, after a column's name or without one."""
    words = (m.group().decode("latin-1") for m in re.finditer(rb'[^\s,;"]+', body))
    first = next(words, None)
    if first is not None and first not in _HEADERS:
        yield first
    yield from words
