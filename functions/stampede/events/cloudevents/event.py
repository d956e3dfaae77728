"""A CloudEvent as a function receives it, and the Kafka position it comes from.

The attributes are those of Knative's KafkaSource: binary mode, the offset in ``subject`` as
``partition:<p>#<offset>``, the topic after the ``#`` of ``source``. The extension attribute
``topicid`` tells topics of one name apart: Kafka's id of the topic, or a text that an operator
chose for a source that cannot know it.
"""

import base64
import json
from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
from cloudevents.core.base import BaseCloudEvent
from cloudevents.core.bindings.common import get_event_factory_for_version
from cloudevents.core.bindings.http import HTTPMessage, from_binary
from cloudevents.core.exceptions import CloudEventValidationError
from cloudevents.core.formats.json import JSONFormat

from stampede.errors import NotAnEvent, UnknownMode
from stampede.events.auth.access import ATTRIBUTE
from stampede.events.cloudevents.attributes import COUNT, FAR_YEAR, SUBJECT, checked, shown
from stampede.events.cloudevents.json_body import parse_json
from stampede.events.cloudevents.record_bytes import ATTRIBUTE as ATTRIBUTE_OF_BYTES
from stampede.store.offsets.coverage import Coverage, not_messages_key, topic_key
from stampede.telemetry import tracing

FORMAT = JSONFormat()
REQUIRED = ("specversion", "id", "source", "type")
STRUCTURED = "application/cloudevents"
# Raised by the SDK for headers that are not a CloudEvent.
SDK_ERRORS = (CloudEventValidationError, ValueError, KeyError, TypeError, AttributeError)


class Position(NamedTuple):
    """The position in Kafka that an event comes from; `topic` is the `topic_key`."""

    topic: str
    partition: int
    offset: int


class Event(NamedTuple):
    """One event: its attributes as text, its data, and the path it was sent to."""

    attributes: dict[str, str]
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

    @property
    def skipped(self) -> int:
        """How many offsets just before the event's are no messages, as its source noticed."""
        count = str(self.attributes.get("skippedoffsets") or "")
        return int(count) if COUNT.fullmatch(count) else 0

    @property
    def size(self) -> int:
        """Bytes of the data, and of the longest attribute that an event may have."""
        return len(self.data) + len(self.attributes.get(ATTRIBUTE_OF_BYTES, ""))

    @property
    def traceparent(self) -> str | None:
        """The context of the event's trace: the sender's or, from a KafkaSource, the record's."""
        attributes = self.attributes
        return attributes.get(tracing.NAME) or attributes.get(f"kafkaheader{tracing.NAME}")

    def continued(self, step: tracing.Step) -> "Event":
        """The event as a part of this step of its trace."""
        return self._replace(attributes=self.attributes | {tracing.NAME: step.traceparent})

    def __str__(self) -> str:
        return f"event {self.attributes['id']} of {self.attributes['source']}"


def parse(headers: Iterable[tuple[bytes, bytes]], body: bytes, path: str = "/") -> Event:
    """The event in an HTTP request, in binary or structured mode.

    Raises
    ------
    NotAnEvent
        The request has no CloudEvent, or a wrong one.
    UnknownMode
        It has several CloudEvents in one body, or one in another format than JSON.
    """
    fields = [(name.decode("latin-1").lower(), value.decode("latin-1")) for name, value in headers]
    text = dict(fields)
    try:
        if "ce-specversion" in text or "ce-id" in text or "ce-type" in text:
            if len(text) < len(fields):
                _check_once(name for name, _ in fields)
            return Event(binary_attributes(text), body, path)
        kind = text.get("content-type", "").partition(";")[0].strip().lower()
        if not kind.startswith(STRUCTURED):
            raise NotAnEvent("the request is not a CloudEvent: it has no ce- headers")
        if kind != f"{STRUCTURED}+json":
            raise UnknownMode(
                f"{shown(kind)} is not accepted: send one CloudEvent a request, in binary mode or "
                f"as {STRUCTURED}+json"
            )
        return Event(*structured(body), path)
    except SDK_ERRORS as error:
        raise NotAnEvent(f"the request is not a valid CloudEvent: {one_line(error)}") from error


def binary_attributes(headers: dict[str, str]) -> dict[str, str]:
    """The attributes in the headers of a request. Raises one of `SDK_ERRORS`."""
    headers = {name: value for name, value in headers.items() if name.startswith(("ce-", "cont"))}
    headers.pop(f"ce-{ATTRIBUTE}", None)
    # The SDK would parse the time: its text is kept, and a time that no clock can show is none.
    time = headers.pop("ce-time", None)
    attributes = from_binary(HTTPMessage(headers, b""), FORMAT, make_sdk_event).get_attributes()
    return with_time(attributes, time)


def structured(body: bytes) -> tuple[dict[str, str], bytes]:
    """The attributes and the data of an event in JSON. Raises one of `SDK_ERRORS`."""
    members = parse_json(body)
    if not isinstance(members, dict):
        raise ValueError("it is not a JSON object")
    data = data_of(members)
    members.pop(ATTRIBUTE, None)
    time = members.pop("time", None)
    return with_time(make_sdk_event(checked(members), None).get_attributes(), time), data


def with_time(attributes: dict[str, Any], time: str | None) -> dict[str, str]:
    """These attributes, checked, and the time if it is one. Raises `ValueError`."""
    removed = ("time", ATTRIBUTE)  # the key must not be stored, logged or sent on
    attributes = {name: value for name, value in attributes.items() if name not in removed}
    if time is not None and not (isinstance(time, str) and FAR_YEAR.match(time)):
        attributes["time"] = time
    texts = checked(attributes)
    if "time" in texts:
        check_time(texts["time"])
    return texts


def check_time(time: str) -> None:
    """Raise `ValueError` unless a text is a time with its zone."""
    try:
        aware = datetime.fromisoformat(time.upper()).tzinfo is not None
    except ValueError:
        aware = False
    if not aware:
        raise ValueError(f"time: {shown(time)} is not a time with its zone, RFC 3339")


def make_sdk_event(attributes: dict[str, Any], data: Any) -> BaseCloudEvent:
    """An event of the SDK. Raises `ValueError` for a missing attribute: the SDK would invent it."""
    if missing := [name for name in REQUIRED if name not in attributes]:
        raise ValueError(f"it lacks {', '.join(missing)}")
    return get_event_factory_for_version(attributes["specversion"])(attributes, data)


def data_of(members: dict[str, Any]) -> bytes:
    """Take the data out of a structured event, as binary mode would carry them.

    Raises
    ------
    ValueError
        The data is not base64 where it should be, or is there twice.
    """
    data, encoded = members.pop("data", None), members.pop("data_base64", None)
    if members.get("specversion") == "0.3" and members.pop("datacontentencoding", "") == "base64":
        data, encoded = None, data
    if encoded is not None:
        if data is not None:
            raise ValueError("it has both data and data_base64")
        try:
            return base64.b64decode(encoded, validate=True)
        except (ValueError, TypeError) as error:
            raise ValueError(f"data_base64: not base64: {error}") from None
    if data is None:
        return b""
    try:
        return data.encode() if isinstance(data, str) else json.dumps(data).encode()
    except UnicodeEncodeError:
        raise ValueError("data: half a character (a surrogate)") from None


def one_line(error: Exception) -> str:
    """An error of the SDK in one line."""
    problems = getattr(error, "errors", None)
    if not isinstance(problems, dict):
        return str(error)
    return "; ".join(f"{name}: {', '.join(map(str, why))}" for name, why in problems.items())


def _check_once(names: Iterable[str]) -> None:
    """Raise `ValueError` if an attribute has two headers: a proxy may have read the other one."""
    for name, number in Counter(names).items():
        if number > 1 and (name.startswith("ce-") or name == "content-type"):
            raise ValueError(f"{name.removeprefix('ce-')}: its header is there {number} times")


def coverage_of_positions(
    positions: Iterable[Position | None], skipped: Iterable[int] = ()
) -> Coverage:
    """The coverage of these Kafka positions; None is left out.

    `skipped` are the numbers of offsets just before each position that are no messages.
    """
    offsets: dict[tuple[str, int], list[int]] = {}
    gaps: list[Coverage] = []
    for position, count in zip_longest(positions, skipped, fillvalue=0):
        if not isinstance(position, Position):
            continue
        offsets.setdefault((position.topic, position.partition), []).append(position.offset)
        if count:
            low = max(0, position.offset - count)
            gap = np.array([[low, position.offset]], np.int64)
            gaps.append(Coverage({(not_messages_key(position.topic), position.partition): gap}))
    return Coverage.union([Coverage.of(offsets), *gaps])
