"""What a system spends: CPU time of its processes and of the servers, requests to S3, bytes."""

import time
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from stampede.errors import StampedeError
from stampede.store.s3.bucket import S3Objects
from stampede_bench.instruments.cpu import Cpu
from stampede_bench.instruments.gateway import Gateway
from stampede_bench.instruments.servers import Servers
from stampede_local.process import Process

_LOG_SECONDS = 1.5  # the gateway's log is written by a thread
_LOOK_SECONDS = 0.5
_STALLED_SECONDS = 300.0


class Spent(NamedTuple):
    """What was spent: CPU seconds by process, of a wall time; requests by kind; bytes stored."""

    cpu: dict[str, float]
    wall: float
    requests: Counter[str]
    stored: int


class Meter:
    """What is spent from now on.

    Parameters
    ----------
    bucket
        Where a system stores. None: it only reads.
    others
        Processes besides the servers, by name.
    client
        Whether this process is a part of the system.
    """

    def __init__(
        self,
        running: Servers,
        bucket: S3Objects | None,
        others: Mapping[str, int],
        client: bool = False,
    ) -> None:
        self._bucket, self._client = bucket, client
        self._before = self._size()
        time.sleep(_LOG_SECONDS)  # until the log has that listing
        self.gateway = Gateway(running.ceph.gateway)
        self._cpu = Cpu({**others, **running.pids})
        self._own = time.process_time()

    def end(self) -> Spent:
        """What was spent until now."""
        own = time.process_time() - self._own
        cpu, wall = self._cpu.seconds(), self._cpu.wall
        if self._client:
            cpu = {"the client": own, **cpu}
        time.sleep(_LOG_SECONDS)
        requests = self.gateway.requests()
        return Spent(cpu, wall, requests, self._size() - self._before)

    def _size(self) -> int:
        return sum(info.size for info in self._bucket.list("")) if self._bucket else 0


def wait_for_puts(gateway: Gateway, count: int, process: Process) -> None:
    """Wait until S3 has had so many PUTs. Its log says so, which costs the servers nothing.

    Raises `StampedeError` if the process ends or nothing comes for minutes.
    """
    best, since = -1, time.monotonic()
    while (now := gateway.requests()["PUT"]) < count:
        if not process.running:
            raise process.failure(f"ended with status {process.status}")
        if now > best:
            best, since = now, time.monotonic()
        elif time.monotonic() - since > _STALLED_SECONDS:
            raise StampedeError(f"{process.name} stored nothing for {_STALLED_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)


def idle(pids: Mapping[str, int], seconds: float) -> dict[str, float]:
    """Cores that processes use while nothing is asked of them, by their names."""
    cpu = Cpu(pids)
    time.sleep(seconds)
    return {name: spent / cpu.wall for name, spent in cpu.seconds().items()}
