"""An HTTP proxy before an S3 endpoint: on demand it fails, delays, cuts or repeats requests."""

import asyncio
import contextlib
import random
import re
import ssl
import threading
from collections import Counter, deque
from typing import NamedTuple, Self

WRITES = ("PUT", "DELETE")
# What a fault may be done to: every request, writes, GETs of objects, or listings.
FAULTS = {
    "500": "any",
    "503": "any",
    "refused": "any",
    "slow": "any",
    "answer-lost": "any",
    "late": "write",
    "twice": "write",
    "full": "put",
    "cut": "get",
    "stale-list": "list",
    "omitted-key": "list",
}
KEPT_LISTS = 50
ERROR = b"<?xml version='1.0'?><Error><Code>%s</Code><Message>injected</Message></Error>"


class Request(NamedTuple):
    """One request: its first line, and all its bytes."""

    line: str
    data: bytes

    @property
    def kind(self) -> str:
        """`put`, `delete`, `list`, `get` or `other`."""
        method, _, rest = self.line.partition(" ")
        if method == "GET":
            return "list" if "prefix=" in rest or "list-type" in rest else "get"
        return {"PUT": "put", "DELETE": "delete"}.get(method, "other")


class Answer(NamedTuple):
    """One response: its head with the empty line, and its body."""

    head: bytes
    body: bytes

    @classmethod
    def error(cls, status: str, code: bytes) -> Self:
        """An S3 error."""
        body = ERROR % code
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/xml\r\n"
        return cls(f"{head}Content-Length: {len(body)}\r\n\r\n".encode(), body)


class Proxy:
    """Listens on a port of its own while the ``with`` block runs.

    Parameters
    ----------
    tls
        Clients speak TLS with it; without, they do not.
    slow
        Least and most seconds that a slow request waits.

    Attributes
    ----------
    injected
        How many requests each kind of fault was done to.
    """

    def __init__(
        self,
        port: int,
        to_port: int,
        seed: int,
        tls: ssl.SSLContext | None = None,
        slow: tuple[float, float] = (1, 6),
    ) -> None:
        self.port, self._to, self._tls, self._slow = port, to_port, tls, slow
        self.injected: Counter[str] = Counter()
        self._chance = random.Random(seed)
        self._wanted: deque[str] = deque()
        self._lists: dict[str, deque[Answer]] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        serve = asyncio.start_server(
            self._serve, "127.0.0.1", self.port, limit=1 << 20, ssl=self._tls
        )
        asyncio.run_coroutine_threadsafe(serve, self._loop).result(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def inject(self, fault: str, requests: int) -> None:
        """Do this to the next `requests` requests that it fits."""
        self._wanted.extend([fault] * requests)

    def be_kind(self) -> None:
        """Forget the faults that were not done yet."""
        self._wanted.clear()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while request := await _read_request(reader):
                if not await self._answer(request, writer):
                    break
        with contextlib.suppress(OSError):
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; returns whether the connection stays."""
        fault = self._fault_for(request)
        match fault:
            case "500":
                response = Answer.error("500 Internal Server Error", b"InternalError")
            case "503":
                response = Answer.error("503 Service Unavailable", b"SlowDown")
            case "full":
                response = Answer.error("403 Forbidden", b"QuotaExceeded")
            case "refused":
                return False
            case "late":
                self._later(request)
                return False
            case _:
                if fault == "slow":
                    await asyncio.sleep(self._chance.uniform(*self._slow))
                response = await self._forward(request)
        match fault:
            case "answer-lost":
                return False
            case "twice":
                self._later(request)
            case "cut" if len(response.body) > 1:
                writer.write(response.head + response.body[: len(response.body) // 2])
                await writer.drain()
                return False
            case "omitted-key":
                response = self._without_a_key(response)
            case "stale-list":
                response = self._chance.choice(self._lists[request.line])
        if request.kind == "list" and fault is None:
            kept = self._lists.setdefault(request.line, deque(maxlen=KEPT_LISTS))
            kept.append(response)
        writer.write(response.head + response.body)
        await writer.drain()
        return b"connection: close" not in response.head.lower()

    def _fault_for(self, request: Request) -> str | None:
        for fault in list(self._wanted):
            fits = FAULTS[fault]
            kind = request.kind
            if fits in ("any", kind) or (fits == "write" and kind in ("put", "delete")):
                if fault == "stale-list" and request.line not in self._lists:
                    continue
                self._wanted.remove(fault)
                self.injected[fault] += 1
                return fault
        return None

    def _later(self, request: Request) -> None:
        async def land() -> None:
            await asyncio.sleep(self._chance.uniform(0.5, 8))
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._forward(request)

        self._landing = self._loop.create_task(land())

    async def _forward(self, request: Request) -> Answer:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._to, limit=1 << 20)
        try:
            writer.write(request.data)
            await writer.drain()
            return await _read_answer(reader, request.line.startswith("HEAD "))
        finally:
            writer.close()

    def _without_a_key(self, response: Answer) -> Answer:
        entries = list(re.finditer(rb"<Contents>.*?</Contents>", response.body, re.DOTALL))
        if not entries:
            return response
        entry = self._chance.choice(entries)
        body = response.body[: entry.start()] + response.body[entry.end() :]
        length = f"Content-Length: {len(body)}".encode()
        return Answer(re.sub(rb"(?i)content-length: *\d+", length, response.head), body)


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line = head.partition(b"\r\n")[0].decode("latin-1")
    body = await reader.readexactly(_content_length(head))
    return Request(line, head + body)


async def _read_answer(reader: asyncio.StreamReader, without_body: bool) -> Answer:
    head = await reader.readuntil(b"\r\n\r\n")
    if without_body or head[9:12] in (b"204", b"304"):
        return Answer(head, b"")
    if b"transfer-encoding: chunked" not in head.lower():
        return Answer(head, await reader.readexactly(_content_length(head)))
    body = b""
    while size := int(await reader.readline(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    length = f"Content-Length: {len(body)}".encode()
    return Answer(re.sub(rb"(?i)transfer-encoding: chunked", length, head), body)


def _content_length(head: bytes) -> int:
    found = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return int(found[1]) if found else 0
