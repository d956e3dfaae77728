"""Asks `read` for alerts until it answers with them: an image, the light curve, the packet.

Every time is an upper bound. Each partition has a connection. It asks for one alert at a time, in
the order of their offsets, and pauses after an answer 404. So a time is too late by at most the
pause and the answers, or because an alert before it in its partition came later.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from http.client import HTTPConnection
from typing import NamedTuple

from stampede.errors import StampedeError
from stampede_bench.http_load import connected
from stampede_bench.visit_alerts import VisitAlerts
from stampede_bench.visit_sender import partition_of

PATIENCE = 400.0  # seconds


class Readable(NamedTuple):
    """When an alert's image, light curve and packet were read first (s, UNIX)."""

    cutout: float
    light_curve: float
    packet: float


def read(
    url: str, alerts: VisitAlerts, numbers: Iterable[int], pause: float, begin: float = 0.0
) -> dict[int, Readable]:
    """Ask for alerts from `begin` on (s, UNIX) until each was read, by number.

    Raises `StampedeError` if one cannot be read, or is not what was sent.
    """
    by_partition = defaultdict(list)
    for number in sorted(numbers):
        by_partition[partition_of(number)].append(number)
    time.sleep(max(0.0, begin - time.time()))

    def read_all(of_partition: Sequence[int]) -> dict[int, Readable]:
        connection = connected(url)
        try:
            return {number: _read(connection, alerts, number, pause) for number in of_partition}
        finally:
            connection.close()

    with ThreadPoolExecutor(len(by_partition)) as pool:
        found = pool.map(read_all, by_partition.values())
        return {number: times for part in found for number, times in part.items()}


def _read(connection: HTTPConnection, alerts: VisitAlerts, number: int, pause: float) -> Readable:
    ids = alerts.ids(number)
    cutout, _ = _wait(connection, f"/v1/alerts/{ids.alert}/cutouts/difference", pause)
    curve, _ = _wait(connection, f"/v1/objects/{ids.object}/lightcurve", pause)
    packet, body = _wait(connection, f"/v1/alerts/{ids.alert}/packet", pause)
    if body != alerts.message(number):
        raise StampedeError(f"the packet of alert {ids.alert} is not the message that was sent")
    return Readable(cutout, curve, packet)


def _wait(connection: HTTPConnection, path: str, pause: float) -> tuple[float, bytes]:
    """The time of the first answer 200, and its body."""
    deadline = time.monotonic() + PATIENCE
    while True:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status == HTTPStatus.OK:
            return time.time(), body
        if answer.status != HTTPStatus.NOT_FOUND or time.monotonic() > deadline:
            raise StampedeError(f"{path} answers {answer.status}: {body[:200]!r}")
        time.sleep(pause)
