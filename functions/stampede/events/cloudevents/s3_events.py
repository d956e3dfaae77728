"""The event that reports a stored object.

Its form is that of the CloudEvents adapter for S3 notifications (the specification's
``cloudevents/adapters/aws-s3.md``): the object's key is the subject, the data is the S3 record.
The type is the same for every way of storing an object: a PUT, an upload in parts, a copy. The
extensions `collection` and `night` repeat parts of the key, so that filters can match exactly.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any
from urllib.parse import quote_plus, unquote_plus

from stampede.errors import NotAnEvent
from stampede.events.cloudevents.event import Event
from stampede.events.cloudevents.kafka_record import extension_headers
from stampede.telemetry import tracing

CREATED = "ObjectCreated:"
PREFIX = "com.amazonaws.s3."
TYPE = f"{PREFIX}{CREATED}Put"

_CEPH = "ceph:s3"
_NIGHT = re.compile(r"(?:packs|thumbnails|packets|alerts/[^/]+/[^/]+)/(-?[0-9]+)/")


def key_of(event: Event) -> str:
    """The key of the stored object. Raises `NotAnEvent` if the event reports none."""
    kind, key = event.attributes["type"], event.attributes.get("subject")
    if not kind.startswith(PREFIX + CREATED) or not key:
        raise NotAnEvent(f"not the event of a stored object: type {kind}, subject {key!r}")
    return key


def stored_event(
    bucket: str,
    region: str,
    key: str,
    size: int | None = None,
    etag: str | None = None,
    modified: datetime | None = None,
) -> Event:
    """The event that reports an object, from what a listing says about the object.

    The same object always makes the same event.
    """
    members = {"key": quote_plus(key, safe="/"), "size": size, "eTag": etag}
    record: dict[str, Any] = {
        "eventVersion": "2.2",
        "eventSource": "aws:s3",
        "awsRegion": region,
        "eventName": f"{CREATED}Put",
        "s3": {
            "s3SchemaVersion": "1.0",
            "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"},
            "object": {name: value for name, value in members.items() if value is not None},
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
        S3's record of one object, with or without ``s3:`` before the event's name.
    region
        Used if the record names no region, as in Ceph's records.

    Raises
    ------
    NotAnEvent
        `record` is not an S3 record.
    """
    try:
        name = record["eventName"].removeprefix("s3:")
        bucket, key = record["s3"]["bucket"]["name"], _key_in(record)
        response = record.get("responseElements") or {}
        ids = [str(response.get(header) or "") for header in ("x-amz-request-id", "x-amz-id-2")]
    except (KeyError, TypeError, AttributeError) as error:
        raise NotAnEvent(f"not an S3 record: it lacks {error}") from None
    if not (name and all(isinstance(each, str) and each for each in (bucket, key))):
        raise NotAnEvent("not an S3 record: its event, bucket or key is not text")
    data = json.dumps(record, sort_keys=True).encode()
    attributes = {
        "specversion": "1.0",
        # The id of the request that stored the object: a repeated record is the same event.
        "id": ".".join(ids) if all(ids) else hashlib.blake2b(data, digest_size=16).hexdigest(),
        "source": f"aws:s3.{record.get('awsRegion') or region}.{bucket}",
        "type": TYPE if name.startswith(CREATED) else PREFIX + name,
        "subject": key,
        **extensions_of(key),
        **_trace_of(record),
        "datacontenttype": "application/json",
    }
    with suppress(KeyError, TypeError, ValueError):  # the time is optional
        attributes["time"] = text_of(datetime.fromisoformat(record["eventTime"]))
    return Event(attributes, data)


def _key_in(record: Mapping[str, Any]) -> str:
    """The key in an S3 record, decoded. S3 encodes it as in a form; Ceph's RGW does not encode it.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/notification-content-structure.html
    """
    key = record["s3"]["object"]["key"]
    return key if record.get("eventSource") == _CEPH else unquote_plus(key)


def _trace_of(record: Mapping[str, Any]) -> dict[str, str]:
    """The context of the trace in which an object was stored: RGW's records have its metadata."""
    with suppress(KeyError, TypeError, AttributeError):
        for each in record["s3"]["object"]["metadata"]:
            if each["key"].lower() == tracing.METADATA and tracing.sampled(each["val"]):
                return {tracing.NAME: each["val"]}
    return {}


def extensions_of(key: str) -> dict[str, str]:
    """Attributes that filters of Triggers can match exactly.

    `collection` is the first part of the key, such as ``packs``; `night` is the night (MJD) of
    objects that are stored by night, such as ``61006``.
    """
    collection, slash, _ = key.partition("/")
    night = _NIGHT.match(key)
    return ({"collection": collection} if slash else {}) | ({"night": night[1]} if night else {})


def headers_of(event: Event) -> dict[str, str]:
    """HTTP headers of an event in binary mode; the body is its data."""
    attributes = {
        name: text_of(value) for name, value in event.attributes.items() if value is not None
    }
    content_type = attributes.pop("datacontenttype", None)
    headers = extension_headers(attributes)
    return headers | {"content-type": content_type} if content_type else headers


def text_of(value: Any) -> str:
    """An attribute's value as text; times in RFC 3339."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
