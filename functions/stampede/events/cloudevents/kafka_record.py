"""A Kafka record, and the CloudEvent that a Knative KafkaSource makes of it.

The rules are those of eventing-kafka-broker's ``InvalidCloudEventInterceptor`` (for a record that
is not a CloudEvent itself, as alerts are not) and of CloudEvents' HTTP binding 1.0.2, binary mode.
The attribute `kafkarecord` is added: see `record_bytes`.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, NamedTuple
from urllib.parse import quote

from stampede.events.cloudevents.attributes import NAME_LENGTH, SHORT_LENGTH
from stampede.events.cloudevents.envelope import HEADER
from stampede.events.cloudevents.record_bytes import (
    AS_TEXT,
    ATTRIBUTE,
    Header,
    RecordBytes,
    attribute_of,
    is_text,
    survives,
)

TYPE = "dev.knative.kafka.event"

# Kafka's timestamps in milliseconds that RFC 3339 can write. A producer that counts microseconds is
# beyond them; its alerts are sent without a time, which is optional.
FIRST, LAST = 0, 253_402_300_799_999  # years 1970 to 9999
# Of what a function accepts, the part that a record's key and headers may take as text. What
# exceeds it is in `kafkarecord` alone.
KEY_LENGTH = 16 << 10
HEADERS_LENGTH = 64 << 10
MOST_HEADERS = 100
BYTES = f"ce-{ATTRIBUTE}"
TEXTS = ("ce-partitionkey", f"ce-{HEADER}")

# HTTP binding, 3.1.3.2: a header percent-encodes space, double quote, percent, and everything
# that is not printable ASCII.
_SAFE = "".join(c for c in map(chr, range(0x21, 0x7F)) if c not in '"%')
_PLAIN = re.compile(r"[!#$&-~]*")


class Record(NamedTuple):
    """One Kafka record."""

    topic: str
    partition: int
    offset: int
    milliseconds: int | None  # Kafka's timestamp, since 1970-01-01 UTC
    key: bytes | None
    headers: Sequence[Header]
    value: bytes
    topic_id: str | None = None  # see `TopicIds`
    skipped: int = 0  # offsets just before this one that are no messages
    lost: str = ""  # what of its key and headers cannot be read, for people

    @classmethod
    def of(cls, message: Any, topic_id: str | None = None, skipped: int = 0) -> "Record":
        """The record in a `confluent_kafka.Message`; a null value becomes empty bytes."""
        kind, milliseconds = message.timestamp()
        lost = ""
        try:
            headers = message.headers() or ()
        except Exception:  # a name that is no text: the alert is good all the same
            headers, lost = (), "its headers, whose names are no UTF-8"
        return cls(
            message.topic(),
            message.partition(),
            message.offset(),
            milliseconds if kind else None,
            message.key(),
            headers,
            message.value() or b"",
            topic_id,
            skipped,
            lost,
        )

    @property
    def size(self) -> int:
        """Bytes of value, key and headers."""
        size = len(self.value) + len(self.key or b"")
        if self.headers:
            size += sum(len(name) + len(value or b"") for name, value in self.headers)
        return size

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}@{self.offset}"


class CloudEventHeaders:
    """Makes the HTTP headers of records' events.

    Attributes are written straight into headers: 2 µs an event against 9 µs through an event
    object of the CloudEvents SDK, and Kafka's milliseconds stay milliseconds. A test compares
    the headers with what the SDK parses.

    Parameters
    ----------
    namespace, name
        Those of the source, for the ``source`` attribute.
    extensions
        Set on every event; they replace the record's (Knative's ``K_CE_OVERRIDES``).
    """

    def __init__(self, namespace: str, name: str, extensions: Mapping[str, str]) -> None:
        self._source = f"/apis/v1/namespaces/{namespace}/kafkasources/{name}#"
        self._overrides = extension_headers(extensions)
        self._texts_overridden = any(name.startswith(TEXTS) for name in self._overrides)

    def headers(self, record: Record) -> dict[str, str]:
        """HTTP headers of the record's event; its body is the record's value."""
        partition, offset = record.partition, record.offset
        headers = {
            "ce-specversion": "1.0",
            "ce-type": TYPE,
            "ce-source": self._source + record.topic,
            "ce-subject": f"partition:{partition}#{offset}",
            "ce-id": f"partition:{partition}/offset:{offset}",
            "ce-knativekafkapartition": str(partition),
            "ce-knativekafkaoffset": str(offset),
        }
        if record.topic_id:
            headers["ce-topicid"] = record.topic_id
        if record.skipped:
            headers["ce-skippedoffsets"] = str(record.skipped)
        if record.milliseconds is not None and FIRST <= record.milliseconds <= LAST:
            headers["ce-time"] = _time(record.milliseconds)
        # A KafkaSource sets no attribute for a null or empty key.
        if record.key and len(key := _encoded(_text(record.key))) <= KEY_LENGTH:
            headers["ce-partitionkey"] = headers["ce-key"] = key
        headers.update(_headers_of(record))
        headers[BYTES] = self._bytes_of(record, headers)
        headers.update(self._overrides)
        return headers

    def _bytes_of(self, record: Record, headers: Mapping[str, str]) -> str:
        """The attribute `kafkarecord` of a record whose other headers these are."""
        key, lost = record.key, record.lost
        if not lost and not self._texts_overridden:
            if key is None and not record.headers:
                return AS_TEXT
            key_is_there = key is None or ("ce-partitionkey" in headers and is_text(key))
            if key_is_there and survives(record.headers):
                names = (f"ce-{HEADER}{name}" for name, _ in record.headers)
                if all(name in headers for name in names):
                    return AS_TEXT
        return attribute_of(RecordBytes(key, record.headers, lost))


def extension_headers(extensions: Mapping[str, str]) -> dict[str, str]:
    """The headers of extension attributes."""
    return {f"ce-{name}": _encoded(str(value)) for name, value in extensions.items()}


def _headers_of(record: Record) -> dict[str, str]:
    """The HTTP headers of a record's own headers, as many as a function accepts."""
    headers = {}
    room = HEADERS_LENGTH
    for name, value in islice(record.headers, MOST_HEADERS):
        if value is None:
            continue
        if name.lower() == "content-type":
            text = _text(value).lower().strip()
            if text.isascii() and text.isprintable() and 0 < len(text) <= SHORT_LENGTH:
                headers["content-type"] = text
            continue
        attribute, text = f"{HEADER}{_attribute(name)}", _encoded(_text(value))
        room -= len(attribute) + len(text)
        if len(attribute) <= NAME_LENGTH and room >= 0:
            headers[f"ce-{attribute}"] = text
    return headers


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")


def _attribute(name: str) -> str:
    """A Kafka header's name without the characters that an attribute's name may not have."""
    return re.sub("[^a-z0-9]", "", name.lower())


def _encoded(value: str) -> str:
    return value if _PLAIN.fullmatch(value) else quote(value, safe=_SAFE)


def _time(milliseconds: int) -> str:
    """RFC 3339, for example ``2026-03-01T04:05:06.789Z``."""
    seconds, rest = divmod(milliseconds, 1000)
    moment = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    return f"{moment.isoformat()}.{rest:03d}Z"
