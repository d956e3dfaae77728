"""The one event that says that an object was stored.

It is the form that CloudEvents' own adapter gives S3's notifications (the specification's
``cloudevents/adapters/aws-s3.md``): the object's key is the subject, the data is the S3 record.
"""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

from stampede.errors import NotAnEvent
from stampede.events.event import Event
from stampede.events.record import extension_headers

CREATED = "ObjectCreated:"
PREFIX = "com.amazonaws.s3."
TYPE = f"{PREFIX}{CREATED}Put"


def key_of(event: Event) -> str:
    """Key of the object that was stored. Raises `NotAnEvent` for an event of another type."""
    kind, key = event.attributes["type"], event.attributes.get("subject")
    if not kind.startswith(PREFIX + CREATED) or not key:
        raise NotAnEvent(f"no object was stored: an event of type {kind} with subject {key!r}")
    return key


def stored_event(
    bucket: str,
    region: str,
    key: str,
    size: int | None = None,
    etag: str | None = None,
    modified: datetime | None = None,
) -> Event:
    """The event of an object that is in the store, for whoever found it in a listing.

    The same object makes the same event.
    """
    found = {"key": key, "size": size, "eTag": etag}
    record: dict[str, Any] = {
        "eventVersion": "2.2",
        "eventSource": "aws:s3",
        "awsRegion": region,
        "eventName": f"{CREATED}Put",
        "s3": {
            "s3SchemaVersion": "1.0",
            "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"},
            "object": {name: value for name, value in found.items() if value is not None},
        },
    }
    if modified:
        record["eventTime"] = text_of(modified)
    return event_of(record, region)


def event_of(record: Mapping[str, Any], region: str) -> Event:
    """The event of one S3 record.

    Parameters
    ----------
    record
        What S3 says of one object, with or without ``s3:`` before the event's name.
    region
        Where the record names none, as Ceph's do not.

    Raises
    ------
    NotAnEvent
        It is no S3 record.
    """
    try:
        name = record["eventName"].removeprefix("s3:")
        bucket, key = record["s3"]["bucket"]["name"], record["s3"]["object"]["key"]
        answer = record.get("responseElements") or {}
        request = [str(answer.get(name) or "") for name in ("x-amz-request-id", "x-amz-id-2")]
    except (KeyError, TypeError, AttributeError) as error:
        raise NotAnEvent(f"not an S3 record: it lacks {error}") from None
    if not (name and all(isinstance(each, str) and each for each in (bucket, key))):
        raise NotAnEvent("not an S3 record: its event, bucket or key is no text")
    data = json.dumps(record, sort_keys=True).encode()
    attributes = {
        "specversion": "1.0",
        # Of the request that stored the object, so that a repeated record is the same event.
        "id": ".".join(request)
        if all(request)
        else hashlib.blake2b(data, digest_size=16).hexdigest(),
        "source": f"aws:s3.{record.get('awsRegion') or region}.{bucket}",
        "type": PREFIX + name,
        "subject": key,
        "datacontenttype": "application/json",
    }
    with suppress(KeyError, TypeError, ValueError):  # it may be lacking; no event hangs on it
        attributes["time"] = text_of(datetime.fromisoformat(record["eventTime"]))
    return Event(attributes, data)


def headers_of(event: Event) -> dict[str, str]:
    """HTTP headers that carry an event's attributes in binary mode; its data is the body."""
    attributes = {
        name: text_of(value) for name, value in event.attributes.items() if value is not None
    }
    kind = attributes.pop("datacontenttype", None)
    headers = extension_headers(attributes)
    return headers | {"content-type": kind} if kind else headers


def text_of(value: Any) -> str:
    """An attribute's value as it is written: times in RFC 3339, everything else as it is."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
