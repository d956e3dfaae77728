"""One local server in a container: `python -m stampede_local.site_server ceph`.

The pods of a small site for trials and tests (`manifests/site`) run the same servers as
`stampede up`. The process ends when a daemon ends: Kubernetes then starts the container again, and
the new process finds its data.

``SITE_DATA`` is the data directory, ``SITE_PORT`` the server's port. ``SITE_ADVERTISED`` lists
the addresses at which other pods reach Kafka, separated by commas, and ``SITE_TOPICS`` the topics
that it makes. `STAMPEDE_ACCESS_KEY` and `STAMPEDE_SECRET_KEY` are the keys of Ceph's user.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from stampede.config.settings import Settings
from stampede.errors import StampedeError
from stampede_local.ceph import LocalCeph, S3Keys
from stampede_local.kafka import LocalKafka, make_topics

# Kafka's usual port, 9092, is for the advertised address.
PORTS = {"ceph": 8000, "kafka": 9095}


def server_of(name: str) -> LocalCeph | LocalKafka:
    """The server of that name, not yet started."""
    data = Path(os.environ.get("SITE_DATA", "/data"))
    port = int(os.environ.get("SITE_PORT") or PORTS[name])
    if name == "kafka":
        advertised = os.environ["SITE_ADVERTISED"].split(",")
        return LocalKafka(data, port, advertised=advertised, progress=_report)
    settings = Settings()
    return LocalCeph(
        data,
        port,
        keys=S3Keys(settings.access_key, settings.secret_key.get_secret_value()),
        host="0.0.0.0",
        progress=_report,
    )


def main(name: str) -> int:
    """Run the server until SIGTERM or until one of its daemons ends; returns the exit status."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with server_of(name) as server:
        if isinstance(server, LocalKafka) and (topics := os.environ.get("SITE_TOPICS")):
            make_topics(server.bootstrap, topics.split(","))
        while not stop.wait(1.0):
            for process in server.processes:
                if not process.running:
                    _report(str(process.failure(f"ended with status {process.status}")))
                    return 1
    return 0


def _report(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except StampedeError as error:
        sys.exit(error.message)
