"""The examples in `eventing/examples` as requests, checked against the schemas."""

import json
from pathlib import Path
from typing import Any, NamedTuple

from jsonschema import Draft202012Validator

from stampede.events.cloudevents.event import Event, parse
from stampede.events.cloudevents.s3_events import text_of

EVENTING = Path(__file__).parents[4] / "eventing"
ALERTS = ("alert-lsst", "alert-ztf")
LETTER = "dead-letter"
STORED = "stored-object"


class Example(NamedTuple):
    """A request: what `curl --header @NAME.headers --data-binary @NAME.…` sends."""

    headers: dict[str, str]
    body: bytes

    @property
    def event(self) -> Event:
        return event_of(self.headers, self.body)


def example(name: str) -> Example:
    (body,) = EVENTING.glob(f"examples/{name}.[aj]*")
    lines = (EVENTING / "examples" / f"{name}.headers").read_text().splitlines()
    return Example(dict(line.split(": ", 1) for line in lines), body.read_bytes())


def event_of(headers: dict[str, str], body: bytes) -> Event:
    """The event in a request, as a function parses it."""
    return parse([(k.encode("latin-1"), v.encode("latin-1")) for k, v in headers.items()], body)


def problems(schema: str, event: Event, *, data: bool = False) -> list[str]:
    """The errors of an event by a schema of `eventing/schemas`."""
    members: dict[str, Any] = {
        name: text_of(value) for name, value in event.attributes.items() if value is not None
    }
    if data:
        members["data"] = json.loads(event.data)
    schema_document = json.loads((EVENTING / "schemas" / f"{schema}.json").read_text())
    validator = Draft202012Validator(schema_document)
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(members)]
