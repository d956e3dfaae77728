"""Bucket notifications of S3 endpoints: three dialects in, events of stored objects out.

- CloudEvents' own adapter: type ``com.amazonaws.s3.ObjectCreated:Put``, the data an S3 record;
- Ceph's RGW from 17 on with ``cloudevents=true``: type ``com.amazonaws.ObjectCreated:Put``, the
  data a list of S3 records;
- plain S3: no CloudEvent, a list of S3 records, with or without ``s3:`` before an event's name.

All dialects have complete S3 records, so only the records are read. Keys in records are
percent-encoded, MinIO's slashes too; RGW alone does not encode them. An event's subject is the key.
"""

from collections.abc import Iterable

from stampede.errors import NotAnEvent
from stampede.events.cloudevents.event import Event, parse
from stampede.events.cloudevents.json_body import parse_json
from stampede.events.cloudevents.s3_events import CREATED, PREFIX, event_of


def parse_notification(
    headers: Iterable[tuple[bytes, bytes]], body: bytes, path: str = "/"
) -> Event:
    """A notification of any dialect, as an event whose data are its S3 records.

    Raises
    ------
    NotAnEvent
        The request has CloudEvent headers, but is not a CloudEvent.
    """
    headers = list(headers)
    if any(
        name.lower().startswith(b"ce-")
        or (name.lower() == b"content-type" and value.startswith(b"application/cloudevents"))
        for name, value in headers
    ):
        return parse(headers, body, path)
    return Event({"id": "?", "source": "an S3 notification", "type": PREFIX}, body, path)


def stored_events(body: bytes, region: str) -> list[Event]:
    """The events of a notification that report a stored object; other events are left out.

    Raises
    ------
    NotAnEvent
        The body is neither an S3 record nor a list of S3 records.
    """
    try:
        notification = parse_json(body)
    except ValueError as error:
        raise NotAnEvent(f"not an S3 notification: not JSON: {error}") from None
    if not isinstance(notification, dict):
        raise NotAnEvent("not an S3 notification: not a JSON object")
    if notification.get("Event") == "s3:TestEvent":  # S3 sends it when notifications are set up
        return []
    records = notification.get("Records", [notification])
    if not isinstance(records, list):
        raise NotAnEvent("not an S3 notification: its Records are not a list")
    events = [event_of(record, region) for record in records]
    return [event for event in events if event.attributes["type"].startswith(PREFIX + CREATED)]
