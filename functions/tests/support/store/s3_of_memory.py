"""An S3 endpoint over `MemoryObjects`, for reading: ranged GETs, HEAD and listings."""

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from stampede.errors import NotFound
from stampede.store.objects.memory import MemoryObjects

BUCKET = "bucket"


class S3OfMemory:
    """The endpoint.

    Attributes
    ----------
    url
        Of the bucket.
    gets
        Key and first byte of each GET so far.
    spoil
        What is sent in place of a range of a pack.
    seconds
        How long each GET of a pack takes.
    """

    def __init__(self, objects: MemoryObjects, port: int) -> None:
        self.objects = objects
        self.url = f"http://127.0.0.1:{port}/{BUCKET}"
        self.gets: list[tuple[str, int]] = []
        self.spoil: Callable[[bytes], bytes] = lambda data: data
        self.seconds = 0.0

    def of_packs(self) -> list[tuple[str, int]]:
        """The GETs of packs."""
        return [get for get in self.gets if get[0].startswith("packs/")]


@contextmanager
def s3_of_memory(objects: MemoryObjects) -> Iterator[S3OfMemory]:
    """The endpoint while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            key = unquote(url.path).removeprefix(f"/{BUCKET}").lstrip("/")
            if not key:
                self._list(parse_qs(url.query).get("prefix", [""])[0])
                return
            found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            start = int(found[1]) if found else 0
            endpoint.gets.append((key, start))
            try:
                data = objects.get(key)
            except NotFound:
                self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
                return
            stop = min(int(found[2]) + 1, len(data)) if found else len(data)
            if start >= stop:
                self._answer(416, b"<Error><Code>InvalidRange</Code></Error>")
                return
            part = data[start:stop]
            if key.startswith("packs/"):
                time.sleep(endpoint.seconds)
                part = endpoint.spoil(part)
            self._answer(206, part, ("Content-Range", f"bytes {start}-{stop - 1}/{len(data)}"))

        def _list(self, prefix: str) -> None:
            entries = "".join(
                f"<Contents><Key>{escape(info.key)}</Key><Size>{info.size}</Size>"
                f"<ETag>{info.etag}</ETag>"
                f"<LastModified>{info.modified:%Y-%m-%dT%H:%M:%S.000Z}</LastModified></Contents>"
                for info in objects.list(prefix)
            )
            name = f"<Name>{BUCKET}</Name><IsTruncated>false</IsTruncated>"
            text = f"<ListBucketResult>{name}{entries}</ListBucketResult>"
            self._answer(200, text.encode())

        def _answer(self, status: int, body: bytes, *headers: tuple[str, str]) -> None:
            self.send_response(status)
            stamp = ("Last-Modified", "Sun, 22 Nov 2026 10:00:00 GMT")
            for name, value in (*headers, ("ETag", '"an-etag"'), stamp):
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        endpoint = S3OfMemory(objects, server.server_port)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield endpoint
        server.shutdown()
