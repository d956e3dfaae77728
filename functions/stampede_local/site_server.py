"""One local server alone in a container, for others: `python -m stampede_local.site_server ceph`.

The pods of a small site for trying and testing (`manifests/site`) run the very servers that
`stampede up` runs. It ends when a daemon does: its container is then started again, and finds its
data.

``SITE_DATA`` is the directory of the data, ``SITE_PORT`` the server's own port, ``SITE_ADVERTISED``
the addresses by which others reach Kafka, comma-separated; Ceph's keys are `STAMPEDE_ACCESS_KEY`
and `STAMPEDE_SECRET_KEY`.
"""

import os
import signal
import sys
import threading
from pathlib import Path

from stampede.errors import StampedeError
from stampede.settings import Settings
from stampede_local.ceph import LocalCeph
from stampede_local.kafka import LocalKafka

# Of Kafka not the usual port: that is for others.
PORTS = {"ceph": 8000, "kafka": 9095}


def server_of(name: str) -> LocalCeph | LocalKafka:
    """The server of that name, not started."""
    data = Path(os.environ.get("SITE_DATA", "/data"))
    port = int(os.environ.get("SITE_PORT") or PORTS[name])
    if name == "kafka":
        advertised = os.environ["SITE_ADVERTISED"].split(",")
        return LocalKafka(data, port, advertised=advertised, say=_say)
    settings = Settings()
    return LocalCeph(
        data,
        port,
        access_key=settings.access_key,
        secret_key=settings.secret_key.get_secret_value(),
        host="0.0.0.0",
        say=_say,
    )


def main(name: str) -> int:
    """Run it until SIGTERM, or until one of its daemons ends; the exit status."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    with server_of(name) as server:
        while not stop.wait(1.0):
            for process in server.processes:
                if not process.running:
                    _say(str(process.failure(f"ended with status {process.status}")))
                    return 1
    return 0


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1]))
    except StampedeError as error:
        sys.exit(error.message)
