"""Key and headers of a Kafka record as bytes, beside the text that a KafkaSource makes of them.

A KafkaSource makes attributes of them, which are text: of bytes that are no UTF-8 U+FFFD is left,
names lose their case and punctuation, and an empty key, a null header and all but one of those with
one name are gone. So Stampede's source adds the attribute `kafkarecord`: either `AS_TEXT`, if the
text is all there is, or base64 of a JSON object.

Its members are `key`, base64 or null; `headers`, pairs of a name and base64 or null, in order; and
`lost`, what is left out, for people. No decoder of alerts is used: receivers of events have none.
"""

import base64
import json
import re
from binascii import Error
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from stampede.errors import Undecodable

ATTRIBUTE = "kafkarecord"
AS_TEXT = "as-text"  # no base64
MOST_BYTES = 1 << 20
"""Most bytes of key and headers; a Kafka record has no more, unless a broker is told otherwise."""

HEADER_BYTES = 2  # of each header, beside name and value: what their lengths take in Kafka

Header = tuple[str, bytes | None]
_NAME = re.compile("[a-z0-9]+")


class RecordBytes(NamedTuple):
    """Key and headers of a Kafka record.

    Attributes
    ----------
    lost
        What is left out of them, for people; empty if nothing is.
    """

    key: bytes | None
    headers: Sequence[Header]
    lost: str = ""


def packed(record: RecordBytes) -> str:
    """A record as JSON, without what exceeds `MOST_BYTES`."""
    key, headers, lost = record
    too_long = []
    if key is not None and len(key) > MOST_BYTES:
        too_long.append(f"its key of {len(key):,} bytes")
        key = None
    size = len(key or b"") + sum(
        len(name.encode()) + len(value or b"") + HEADER_BYTES for name, value in headers
    )
    if size > MOST_BYTES:
        too_long.append(f"its headers, with the key {size:,} bytes")
        headers = ()
    return json.dumps(
        {
            "key": _base64(key),
            "headers": [(name, _base64(value)) for name, value in headers],
            "lost": ", ".join([*([lost] if lost else []), *too_long]),
        }
    )


def unpacked(text: str) -> RecordBytes:
    """The record in JSON that `packed` made. Raises `Undecodable`."""
    try:
        members = json.loads(text)
        headers = [(_text(name), _bytes(value)) for name, value in members["headers"]]
        lost = _text(members["lost"])
        if not lost.isprintable():  # it is shown on a terminal
            raise ValueError("lost")
        return RecordBytes(_bytes(members["key"]), headers, lost)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Undecodable(f"it is not such a JSON object: {error!r:.100}") from None


def attribute_of(record: RecordBytes) -> str:
    """The attribute of a record."""
    return base64.b64encode(packed(record).encode()).decode()


def json_of(attribute: str | None) -> str | None:
    """The JSON in the attribute; empty if the text is all, None if nobody says so."""
    if attribute == AS_TEXT:
        return ""
    if attribute is None:
        return None
    try:
        return base64.b64decode(attribute, validate=True).decode() or None
    except (Error, ValueError):
        return None


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value, validate=True)


def _text(value: str) -> str:
    """A text that can be written. Raises `ValueError` if it has half a character (a surrogate)."""
    return str(value).encode().decode()


def survives(headers: Iterable[Header]) -> bool:
    """Whether a KafkaSource's attributes and the order of their names give these headers back.

    Their lengths are not looked at.
    """
    before = ""
    for name, value in headers:
        if value is None or name <= before or not _NAME.fullmatch(name) or not is_text(value):
            return False
        before = name
    return True


def is_text(value: bytes) -> bool:
    """Whether bytes are UTF-8."""
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
