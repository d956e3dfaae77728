"""What S3 endpoints send when an object was stored: three dialects in, one out.

- CloudEvents' own adapter: type ``com.amazonaws.s3.ObjectCreated:Put``, the data an S3 record;
- Ceph's RGW from 17 on with ``cloudevents=true``: type ``com.amazonaws.ObjectCreated:Put``, the
  data a list of S3 records;
- plain S3: no CloudEvent, a list of S3 records, with or without ``s3:`` before an event's name.

In all of them the records say everything, so the records are what is read. RGW writes keys as
they are, others percent-encode them; in the keys written here there is nothing to encode.
"""

import json
from collections.abc import Iterable

from stampede.errors import NotAnEvent
from stampede.events.event import Event, parse
from stampede.events.s3_events import CREATED, PREFIX, event_of


def read(headers: Iterable[tuple[bytes, bytes]], body: bytes, path: str = "/") -> Event:
    """A notification of any dialect, as an event whose data are its S3 records.

    Raises
    ------
    NotAnEvent
        It has CloudEvent headers, and is none.
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
    """The events of the objects that a notification says were stored; of no others.

    Raises
    ------
    NotAnEvent
        It is no S3 record and no list of them.
    """
    try:
        said = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NotAnEvent(f"not an S3 notification: not JSON: {error}") from None
    if not isinstance(said, dict):
        raise NotAnEvent("not an S3 notification: not a JSON object")
    if said.get("Event") == "s3:TestEvent":  # S3 sends it when notifications are set up
        return []
    records = said.get("Records", [said])
    if not isinstance(records, list):
        raise NotAnEvent("not an S3 notification: its Records are no list")
    events = [event_of(record, region) for record in records]
    return [e for e in events if e.attributes["type"].startswith(PREFIX + CREATED)]
