"""A CloudEvent as a function receives it, and the Kafka position it comes from.

The attributes are those of Knative's KafkaSource: binary mode, the offset in ``subject`` as
``partition:<p>#<offset>``, the topic after the ``#`` of ``source``. The extension attribute
``topicid`` tells topics of one name apart: Kafka's id of the topic, or a text that an operator
chose for a source that cannot know it.
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
from stampede.store.coverage import Coverage, topic_key

FORMAT = JSONFormat()
REQUIRED = ("specversion", "id", "source", "type")
# At most as many digits as Kafka's partitions (32 bits) and offsets (64 bits) have.
SUBJECT = re.compile(r"partition:([0-9]{1,9})#([0-9]{1,18})")
TOPIC_ID = re.compile("[A-Za-z0-9_-]{1,64}")
# Raised by the SDK for headers and JSON that are not a CloudEvent.
SDK_ERRORS = (
    CloudEventValidationError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
)


class Position(NamedTuple):
    """The position in Kafka that an event comes from; `topic` is the `topic_key`."""

    topic: str
    partition: int
    offset: int


class Event(NamedTuple):
    """One event: its attributes as the SDK parses them, its data, and the path it was sent to."""

    attributes: dict[str, Any]
    data: bytes
    path: str = "/"

    @property
    def position(self) -> Position | None:
        """The event's position in Kafka; None if the event does not come from Kafka."""
        match = SUBJECT.fullmatch(self.attributes.get("subject") or "")
        _, separator, topic = self.attributes["source"].rpartition("#")
        if not (match and separator and topic):
            return None
        key = topic_key(topic, self.attributes.get("topicid"))
        return Position(key, int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"event {self.attributes['id']} of {self.attributes['source']}"


def parse(headers: Iterable[tuple[bytes, bytes]], body: bytes, path: str = "/") -> Event:
    """The event in an HTTP request, in binary or structured mode. Raises `NotAnEvent`."""
    text = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in headers}
    try:
        if "ce-specversion" in text or "ce-id" in text or "ce-type" in text:
            event = from_binary(HTTPMessage(text, b""), FORMAT, make_sdk_event)
            return _checked(Event(event.get_attributes(), body, path))
        if not text.get("content-type", "").startswith("application/cloudevents+json"):
            raise NotAnEvent("the request is not a CloudEvent: it has no ce- headers")
        event = from_structured(HTTPMessage(text, body), FORMAT, make_sdk_event)
    except SDK_ERRORS as error:
        raise NotAnEvent(f"the request is not a valid CloudEvent: {one_line(error)}") from error
    return _checked(Event(event.get_attributes(), data_of(event), path))


def _checked(event: Event) -> Event:
    """The event, unless its topic's id could not be a part of a position. Raises `NotAnEvent`."""
    topic_id = event.attributes.get("topicid")
    if topic_id is not None and not (isinstance(topic_id, str) and TOPIC_ID.fullmatch(topic_id)):
        raise NotAnEvent(
            "topicid is not the id of a topic: it may have up to 64 letters, digits, '-' and '_'"
        )
    return event


def make_sdk_event(attributes: dict[str, Any], data: Any) -> BaseCloudEvent:
    """An event of the SDK. Raises `ValueError` for a missing attribute: the SDK would invent it."""
    if missing := [name for name in REQUIRED if name not in attributes]:
        raise ValueError(f"it lacks {', '.join(missing)}")
    return get_event_factory_for_version(attributes["specversion"])(attributes, data)


def data_of(event: BaseCloudEvent) -> bytes:
    """The data of a structured event, as binary mode would carry them."""
    data: Any = event.get_data()
    if data is None or isinstance(data, bytes):
        return data or b""
    return data.encode() if isinstance(data, str) else json.dumps(data).encode()


def one_line(error: Exception) -> str:
    """An error of the SDK in one line."""
    problems = getattr(error, "errors", None)
    if not isinstance(problems, dict):
        return str(error)
    return "; ".join(f"{name}: {', '.join(map(str, why))}" for name, why in problems.items())


def coverage_of_positions(positions: Iterable[Position | None]) -> Coverage:
    """The coverage of these Kafka positions; None is left out."""
    offsets: dict[tuple[str, int], list[int]] = {}
    for position in positions:
        if position is not None:
            offsets.setdefault((position.topic, position.partition), []).append(position.offset)
    return Coverage.of(offsets)
