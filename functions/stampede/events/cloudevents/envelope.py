"""What a Kafka record has beside its value and its position, as its event brought it."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from stampede.events.cloudevents.record_bytes import ATTRIBUTE, json_of

HEADER = "kafkaheader"  # prefix of the attributes that hold a record's headers


class Envelope(NamedTuple):
    """Timestamp, key and headers of a Kafka record; None for what it did not have.

    Attributes
    ----------
    time
        RFC 3339, as in the event.
    headers
        JSON: an object with the text of each header by its name, in lower-case letters and digits.
    record
        Key and headers as bytes, JSON as of `record_bytes`; empty if `key` and `headers` tell all,
        None if nobody knows that.
    """

    time: str | None = None
    key: str | None = None
    headers: str | None = None
    record: str | None = None

    @property
    def moment(self) -> datetime | None:
        """The timestamp, UTC; None if the record had none, or none from 1970 to 9999."""
        if self.time is None:
            return None
        try:
            moment = datetime.fromisoformat(self.time.upper()).astimezone(UTC)
        except OverflowError:  # its zone takes it out of the years 1 to 9999
            return None
        return moment if moment.year >= 1970 else None


def envelope_of(attributes: Mapping[str, str]) -> Envelope:
    """The envelope in the attributes of an event."""
    headers = {
        name.removeprefix(HEADER): value
        for name, value in attributes.items()
        if name.startswith(HEADER)
    }
    if "datacontenttype" in attributes:
        headers["content-type"] = attributes["datacontenttype"]
    return Envelope(
        attributes.get("time"),
        attributes.get("partitionkey"),
        json.dumps(headers, sort_keys=True) if headers else None,
        json_of(attributes.get(ATTRIBUTE)),
    )
