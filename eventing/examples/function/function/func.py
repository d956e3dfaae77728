"""Counts the alerts of each pack as soon as it is stored. Copy it, and write your own `count`."""

import asyncio
import json
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyarrow.fs import S3FileSystem


def count(path, store):
    """Number of alerts in a pack. Reads its column of ids, not its images."""
    ids = pq.read_table(path, columns=["alert_id"], filesystem=store)["alert_id"]
    return len(ids.unique())


def new():
    """Called once by Knative's runtime."""
    return Function()


class Function:
    """The runtime calls `start` before the first event, and `handle` with each one."""

    def start(self, environment):
        """Connect to the store. Its keys are AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."""
        self.store = S3FileSystem(endpoint_override=environment["S3_ENDPOINT"])

    async def handle(self, scope, receive, send):
        """Answer an event. Other events are handled meanwhile, because a thread does the work."""
        status, text = await asyncio.to_thread(self.answer, scope["event"])
        await send.http({"type": "http.response.start", "status": status, "headers": []})
        await send.http({"type": "http.response.body", "body": text.encode()})

    def answer(self, event):
        """Count, and return a status: 2xx if it is done, 503 to get the event again, 400 never."""
        try:
            stored = event.get_data()["s3"]  # one S3 record, JSON
            path = f"{stored['bucket']['name']}/{unquote(stored['object']['key'])}"
        except (KeyError, TypeError) as error:
            return 400, f"not an event of a stored object: {error!r}"
        try:
            # An event may come twice: what you write must be the same the second time.
            line = json.dumps({"pack": path, "alerts": count(path, self.store)})
            print(f"{line}\n", end="", flush=True)  # in one write: other threads print too
        except FileNotFoundError:  # deleted since, by retention: nothing is left to do
            return 200, "gone"
        except OSError as error:  # the store does not answer
            return 503, str(error)
        return 200, "counted"
