"""A CloudEvent as it reaches a function, and the Kafka offset it stands for.

The contract is that of Knative's KafkaSource: binary mode, the offset in ``subject`` as
``partition:<p>#<offset>``, the topic after the ``#`` of ``source``.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.common import get_event_factory_for_version
from cloudevents.core.bindings.http import HTTPMessage, from_binary, from_structured
from cloudevents.core.exceptions import CloudEventValidationError
from cloudevents.core.formats.json import JSONFormat

from stampede.errors import NotAnEvent
from stampede.store.coverage import Coverage

FORMAT = JSONFormat()
REQUIRED = ("specversion", "id", "source", "type")
# No more digits than a Kafka partition (32 bits) and offset (64 bits) have.
SUBJECT = re.compile(r"partition:([0-9]{1,9})#([0-9]{1,18})")


class Position(NamedTuple):
    """Where in Kafka an event came from."""

    topic: str
    partition: int
    offset: int


class Event(NamedTuple):
    """One event: its attributes, as the SDK reads them, its data, and the path it was sent to."""

    attributes: dict[str, Any]
    data: bytes
    path: str = "/"

    @property
    def position(self) -> Position | None:
        """Its place in Kafka, or None where it came from elsewhere."""
        found = SUBJECT.fullmatch(self.attributes.get("subject") or "")
        _, mark, topic = self.attributes["source"].rpartition("#")
        if not (found and mark and topic):
            return None
        return Position(topic, int(found[1]), int(found[2]))

    def __str__(self) -> str:
        return f"event {self.attributes['id']} of {self.attributes['source']}"


def parse(headers: Iterable[tuple[bytes, bytes]], body: bytes, path: str = "/") -> Event:
    """The event of an HTTP request, in binary or structured mode. Raises `NotAnEvent`."""
    text = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
    try:
        if "ce-specversion" in text or "ce-id" in text or "ce-type" in text:
            event = from_binary(HTTPMessage(text, b""), FORMAT, make)
            return Event(event.get_attributes(), body, path)
        if not text.get("content-type", "").startswith("application/cloudevents+json"):
            raise NotAnEvent("the request is not a CloudEvent: it has no ce- headers")
        event = from_structured(HTTPMessage(text, body), FORMAT, make)
    except INVALID as error:
        raise NotAnEvent(f"the request is not a valid CloudEvent: {describe(error)}") from error
    return Event(event.get_attributes(), data_of(event), path)


# What the SDK raises at headers and JSON that are none of a CloudEvent.
INVALID = (
    CloudEventValidationError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
)


def make(attributes: dict[str, Any], data: Any) -> BaseCloudEvent:
    """The SDK's event, but for its filling in what is missing: a new id every time."""
    if missing := [name for name in REQUIRED if name not in attributes]:
        raise ValueError(f"it lacks {', '.join(missing)}")
    return get_event_factory_for_version(attributes["specversion"])(attributes, data)


def data_of(event: BaseCloudEvent) -> bytes:
    """The data of a structured event as they would have come in binary mode."""
    data: Any = event.get_data()
    if data is None or isinstance(data, bytes):
        return data or b""
    return data.encode() if isinstance(data, str) else json.dumps(data).encode()


def describe(error: Exception) -> str:
    """What the SDK found wrong, in one line."""
    problems = getattr(error, "errors", None)
    if not isinstance(problems, dict):
        return str(error)
    return "; ".join(f"{name}: {', '.join(map(str, found))}" for name, found in problems.items())


def coverage_of_positions(positions: Iterable[Position | None]) -> Coverage:
    """The coverage that these places in Kafka make."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for position in positions:
        if position is not None:
            offsets.setdefault((position.topic, position.partition), []).append(position.offset)
    return Coverage.of(offsets)
