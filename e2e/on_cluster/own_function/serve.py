"""A function of a stranger, and its dead-letter sink: prints each event and its response.

`e2e/on_machine/test_own_function.py` runs the example with Knative's Python runtime, which
Stampede's image lacks; a cluster here can pull no other.
"""

import json
import os

import uvicorn

IS_SINK = bool(os.environ.get("IS_SINK"))
seen = set()


def answer(event_id, body):
    """The sink takes all. The function refuses each event once, and what is no S3 record always."""
    if not IS_SINK and "s3" not in json.loads(body):
        return 400
    first = event_id not in seen
    seen.add(event_id)
    return 503 if first and not IS_SINK else 200


async def app(scope, receive, send):
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    attributes = {name.decode(): value.decode() for name, value in scope["headers"]}
    status = answer(attributes.get("ce-id"), body) if attributes.get("ce-id") else 200
    line = {name: attributes.get(f"ce-{name}") for name in ("subject", "knativeerrorcode")}
    print(json.dumps(line | {"status": status}), flush=True)
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": b""})


uvicorn.run(app, host="0.0.0.0", port=8080, lifespan="off", access_log=False)
