"""TCP ports of 127.0.0.1, for servers that take seconds until they listen."""

import fcntl
import json
import os
import random
import socket
import tempfile
import threading
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import cache
from pathlib import Path

from stampede.errors import SetupError

# Below the range from which Linux takes ports for outgoing connections (32768 and up): none of them
# takes a port between our check and the bind of the server.
_PORTS = range(20_000, 32_000)

_given: set[int] = set()  # ports that `free_port` returned in this process
_giving = threading.Lock()


def free_port(span: int = 1) -> int:
    """A free TCP port of 127.0.0.1 that is followed by `span` - 1 more free ports.

    While this process lives, `free_port` returns none of them again, here or in another process of
    this user: it may take seconds until a server listens.

    Raises
    ------
    SetupError
        There are no such ports.
    """
    for _ in range(1000):
        first = random.choice(_PORTS)
        ports = range(first, first + span)
        with _giving:
            if _given.isdisjoint(ports) and all(map(_is_free, ports)) and _lock(first, span):
                _given.update(ports)
                return first
    raise SetupError(f"no {span} free TCP ports in a row on 127.0.0.1")


def require_free(*ports: int) -> None:
    """Raise `SetupError` if any of `ports` of 127.0.0.1 is taken."""
    for port in ports:
        if not _is_free(port):
            raise SetupError(f"port {port} of 127.0.0.1 is taken: choose another, or end its owner")


class ServerPorts:
    """The ports of a system's servers: the same at every start, so that their URLs stay.

    Parameters
    ----------
    file
        JSON file that keeps the ports from one start to the next.
    usual
        The port that each server prefers at the first start.
    """

    def __init__(self, file: Path, usual: Mapping[str, int]) -> None:
        self._file, self._usual = file, usual
        self._ports: dict[str, int] = {}
        self._claims: list[socket.socket] = []
        with suppress(FileNotFoundError, ValueError):
            self._ports = dict(json.loads(file.read_text()))

    def claim(self, name: str, chosen: int | None = None) -> int:
        """The port of a server: that of the last start, or its usual port, or any free port.

        The port after it is free as well: Ceph's monitor and Kafka's controller take that one.
        Raises `SetupError` if the port is `chosen`, and it or the next one is taken.
        """
        if chosen is not None:
            self._claim(chosen)
            require_free(chosen, chosen + 1)
            self._ports[name] = chosen
            return chosen
        for port in (self._ports.get(name), self._usual[name]):
            if port is None:
                continue
            with suppress(SetupError):
                self._claim(port)
                require_free(port, port + 1)
                self._ports[name] = port
                return port
        self._ports[name] = free_port(2)
        return self._ports[name]

    def save(self) -> None:
        """Save the ports for the next start."""
        self._file.write_text(json.dumps(self._ports))

    def close(self) -> None:
        """Release the claims, so that other systems may use the ports."""
        for claim in self._claims:
            claim.close()

    def _claim(self, port: int) -> None:
        """Claim a port: otherwise two systems that start at the same time would share a Ceph.

        Raises `SetupError` if another system has claimed it.
        """
        claim = socket.socket(socket.AF_UNIX)
        self._claims.append(claim)
        try:
            claim.bind(f"\0stampede-port-{port}")  # abstract: no file remains after the process
        except OSError:
            raise SetupError(f"another system uses port {port}") from None


def _is_free(port: int) -> bool:
    with closing(socket.socket()) as probe:
        # Every server here sets this option too: a port with only closing connections is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _lock(port: int, span: int) -> bool:
    """Lock the bytes of these ports in a file; the kernel releases them when this process ends.

    Such a lock stops other processes but not this one, which has `_given` for that.
    """
    try:
        fcntl.lockf(_lock_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, span, port)
    except OSError:
        return False
    return True


@cache
def _lock_file() -> int:
    path = Path(tempfile.gettempdir(), f"stampede-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
