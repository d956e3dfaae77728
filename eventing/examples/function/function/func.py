"""Counts the alerts of each pack as soon as it is stored. Copy it, and write your own `count`."""

import asyncio
import json
from urllib.parse import unquote

import pyarrow.parquet as pq
from pyarrow.fs import S3FileSystem


def new():
    """Called once by Knative's runtime."""
    return Function()


class Function:
    """Its methods are called by the runtime."""

    def start(self, environment):
        """Connect to the store, before the first event."""
        self.store = S3FileSystem(
            endpoint_override=environment["S3_ENDPOINT"],  # https://host:port
            access_key=environment["S3_ACCESS_KEY"],
            secret_key=environment["S3_SECRET_KEY"],
            connect_timeout=5,
            request_timeout=10,
        )

    async def handle(self, scope, receive, send):
        """Answer one event: 2xx if it is done, 503 to get it again, 400 if it is none."""
        try:
            place = scope["event"].get_data()["s3"]  # one S3 record, JSON
            path = f"{place['bucket']['name']}/{unquote(place['object']['key'])}"
        except (KeyError, TypeError) as error:
            return await answer(send, 400, f"not an event of a stored object: {error!r}")
        try:
            alerts = await asyncio.to_thread(self.count, path)
        except FileNotFoundError:  # deleted since, by retention: nothing is left to do
            return await answer(send, 200, "gone")
        except OSError as error:  # the store does not answer: the Broker sends the event again
            return await answer(send, 503, str(error))
        # An event may come twice: what you write must be the same the second time.
        print(json.dumps({"pack": path, "alerts": alerts}), flush=True)
        await answer(send, 200, "counted")

    def count(self, path):
        """Number of alerts in a pack. Reads its column of ids, not its images."""
        ids = pq.read_table(path, columns=["alert_id"], filesystem=self.store)["alert_id"]
        return len(ids.unique())


async def answer(send, status, text):
    """Send a status and a text."""
    await send.http({"type": "http.response.start", "status": status, "headers": []})
    await send.http({"type": "http.response.body", "body": text.encode()})
