"""Asks `read` for alerts until it answers with them: an image, the light curve, the packet.

Every time is an upper bound. Each partition has a connection. It asks for one alert at a time, in
the order of their offsets, and pauses after a response 404. So a time is too late by at most the
pause and the responses, or because an alert before it in its partition came later.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPConnection
from typing import NamedTuple

from stampede.errors import StampedeError
from stampede_bench.instruments.http_load import connected
from stampede_bench.visits.alerts import VisitAlerts
from stampede_bench.visits.sender import partition_of

PATIENCE = 400.0  # seconds
NO_POD = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)


class Readable(NamedTuple):
    """When an alert's image, light curve and packet were read first (s, UNIX)."""

    cutout: float
    light_curve: float
    packet: float


def read(
    url: str,
    alerts: VisitAlerts,
    numbers: Iterable[int],
    pause: float,
    begin: float = 0.0,
    host: str = "",
) -> dict[int, Readable]:
    """Ask for alerts from `begin` on (s, UNIX) until each was read, by number.

    `host` is the header by which an ingress at `url` chooses `read`. An ingress answers 502 to 504
    while it finds no pod: then this asks again, as after a 404.

    Raises `StampedeError` if one cannot be read, or is not what was sent.
    """
    by_partition = defaultdict(list)
    for number in sorted(numbers):
        by_partition[partition_of(number)].append(number)
    time.sleep(max(0.0, begin - time.time()))

    def read_all(of_partition: Sequence[int]) -> dict[int, Readable]:
        door = _Door(connected(url), host, pause)
        try:
            return {number: _read(door, alerts, number) for number in of_partition}
        finally:
            door.connection.close()

    with ThreadPoolExecutor(len(by_partition)) as pool:
        found = pool.map(read_all, by_partition.values())
        return {number: times for part in found for number, times in part.items()}


class _Door(NamedTuple):
    """A connection, and how it asks."""

    connection: HTTPConnection
    host: str
    pause: float

    def get(self, path: str) -> tuple[int, bytes]:
        """The status and body of a response."""
        self.connection.request("GET", path, headers={"Host": self.host} if self.host else {})
        response = self.connection.getresponse()
        return response.status, response.read()

    def is_absent(self, status: int) -> bool:
        """Whether a status says that what was asked for may come yet."""
        return status == HTTPStatus.NOT_FOUND or (bool(self.host) and status in NO_POD)


def _read(door: _Door, alerts: VisitAlerts, number: int) -> Readable:
    ids = alerts.ids(number)
    cutout, _ = _wait(door, f"/v1/alerts/{ids.alert}/cutouts/difference")
    curve, _ = _wait(door, f"/v1/objects/{ids.object}/lightcurve")
    packet, body = _wait(door, f"/v1/alerts/{ids.alert}/packet")
    if body != alerts.message(number):
        raise StampedeError(f"the packet of alert {ids.alert} is not the message that was sent")
    return Readable(cutout, curve, packet)


def _wait(door: _Door, path: str) -> tuple[float, bytes]:
    """The time of the first response 200, and its body."""
    deadline = time.monotonic() + PATIENCE
    while True:
        status, body = door.get(path)
        if status == HTTPStatus.OK:
            return time.time(), body
        if not door.is_absent(status) or time.monotonic() > deadline:
            raise StampedeError(f"{path} answers {status}: {body[:200]!r}")
        time.sleep(door.pause)
