"""Events whose attributes do not fit into HTTP headers, in structured mode.

Servers bound a request's headers: Envoy, which stands before functions on Knative, accepts 60 KiB.
A Kafka record may have longer ones. In structured mode (CloudEvents 1.0.2, HTTP binding, 3.2) all
attributes are in the body, as JSON. The key of a function is in the headers too: it is checked
before the body is read.
"""

import base64
import json
from collections.abc import Mapping
from urllib.parse import unquote

from stampede.events.auth.access import KEY_HEADER

MOST_HEADER_BYTES = 32 << 10
CONTENT_TYPE = "application/cloudevents+json"


def fitted(headers: Mapping[str, str], body: bytes) -> tuple[Mapping[str, str], bytes]:
    """Headers and body of an event in binary mode; in structured mode if its headers are long."""
    if sum(map(len, headers.values())) <= MOST_HEADER_BYTES:
        return headers, body
    event = {
        name.removeprefix("ce-"): unquote(value)
        for name, value in headers.items()
        if name.startswith("ce-")
    }
    if "content-type" in headers:
        event["datacontenttype"] = headers["content-type"]
    event["data_base64"] = base64.b64encode(body).decode()
    others = {
        name: value
        for name, value in headers.items()
        if name == KEY_HEADER or not name.startswith("ce-")
    }
    return others | {"content-type": CONTENT_TYPE}, json.dumps(event).encode()
