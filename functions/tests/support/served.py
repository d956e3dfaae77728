"""A function as a process, and a client of it."""

import urllib3

from stampede.config.settings import Settings
from stampede_local.process import Process


class Served:
    """A function that runs, and a client of it."""

    def __init__(self, process: Process, url: str, settings: Settings) -> None:
        self.process, self.url, self.settings = process, url, settings
        self.http = urllib3.PoolManager(maxsize=64, retries=False, timeout=90)

    def post(self, offset: int, data: bytes, path: str = "/", **headers: str):
        return self.http.request(
            "POST", self.url + path, body=data, headers=event_headers(offset) | headers
        )


def event_headers(offset: int, topic: str = "alerts") -> dict[str, str]:
    """The headers of the event that a KafkaSource sends for an offset of partition 0."""
    return {
        "ce-specversion": "1.0",
        "ce-type": "dev.knative.kafka.event",
        "ce-source": f"/apis/v1/namespaces/default/kafkasources/test#{topic}",
        "ce-subject": f"partition:0#{offset}",
        "ce-id": f"partition:0/offset:{offset}",
    }


def metrics(served: Served) -> bytes:
    """The metrics of a function, in the text format of Prometheus."""
    return served.http.request("GET", f"{served.url}/metrics").data
