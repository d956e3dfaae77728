"""Strangers: connections that send what costs a server much and a client little.

Each group of them is a process, ``python -m tests.support.read.strangers HOST PORT COUNT KIND``, so
that their work does not hold up the test's own client.
"""

import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

POST = b"POST /v1/cutouts HTTP/1.1\r\nhost: x\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
MANY = 64 << 10  # bytes of one call of send, about

# What a connection sends at its beginning, and then again and again.
KINDS = {
    "chunks of 1 byte": (CHUNKED, b"1\r\n1\r\n" * (MANY // 6)),
    "chunks of 8 bytes": (CHUNKED, b"8\r\n1234567\n\r\n" * (MANY // 13)),
    "chunk extensions": (CHUNKED, b"1;%s\r\n1\r\n" % (b"a" * MANY)),
    "packets of 1 byte": (POST + b"content-length: 60000000\r\n\r\n", b"1"),
    "chunks of 383 bytes": (CHUNKED, b"17f\r\n%s\r\n" % (b"1" * 383) * (MANY // 390)),
    "lines of 12 bytes": (
        POST + b"content-length: 10000000\r\n\r\n",
        b"12345678901\n" * (MANY // 12),
    ),
    "small headers": (POST, b"a:b\r\n" * (MANY // 5)),
}


def shape(name: str) -> tuple[bytes, bytes]:
    """What a connection of a kind that `name` is the seed of sends; see `KINDS`.

    Chunks of up to 500 bytes, in two of five kinds with extensions, or headers of up to 300.
    """
    dice = random.Random(name)

    def length(most: int) -> int:
        return int(most ** dice.random())

    if dice.random() < 0.75:
        extension = b";" + b"a" * length(64) if dice.random() < 0.4 else b""
        size = length(500)
        part = b"%x%s\r\n%s\n\r\n" % (size, extension, b"1" * (size - 1))
        return CHUNKED, part * (MANY // len(part))
    part = b"%s:%s\r\n" % (b"a" * length(50), b"b" * length(250))
    return POST, part * (MANY // len(part))


@contextmanager
def strangers(address: tuple[str, int], count: int, kind: str) -> Iterator[None]:
    """While the context lasts, this many connections of a kind, which come again when cut."""
    if not count:
        yield
        return
    command = [sys.executable, "-m", "tests.support.read.strangers", *map(str, address), str(count)]
    process = subprocess.Popen([*command, kind], stdout=subprocess.PIPE)
    try:
        assert process.stdout
        assert process.stdout.readline() == b"begun\n"
        yield
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def annoy(address: tuple[str, int], kind: str) -> None:
    """Send for ever, over one connection after the other."""
    begin, more = KINDS.get(kind) or shape(kind)
    while True:
        with socket.create_connection(address) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                connection.sendall(begin)
                while True:
                    connection.sendall(more)
            except OSError:
                time.sleep(0.01)


def main(host: str, port: str, count: str, kind: str) -> None:
    """Begin."""
    for _ in range(int(count)):
        threading.Thread(target=annoy, args=((host, int(port)), kind), daemon=True).start()
    time.sleep(0.5)
    print("begun", flush=True)
    time.sleep(60)


if __name__ == "__main__":
    main(*sys.argv[1:])
