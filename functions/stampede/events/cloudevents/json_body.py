"""JSON from outside: parsed only if its values are few, and with no name twice."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

# A value takes up to 100 bytes of memory and two of JSON: 16 MB of empty lists take 0.5 GB.
MOST_VALUES = 100_000


def parse_json(body: bytes) -> Any:
    """The JSON value in a body.

    Raises
    ------
    ValueError
        The body is not JSON in UTF-8, has too many values or too many levels, or an object in it
        has a name twice.
    """
    # One of these precedes every value but the first of all. Those within strings count too.
    if sum(map(body.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise ValueError(f"more than {MOST_VALUES:,} JSON values")
    try:
        return json.loads(body.decode(), object_pairs_hook=_members)
    except RecursionError:
        raise ValueError("too many levels of JSON") from None


def _members(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        twice = next(name for name, times in Counter(n for n, _ in pairs).items() if times > 1)
        raise ValueError(f"{twice[:60]!a} is there twice")
    return members
