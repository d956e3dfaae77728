"""Confluent's schema registry, with prepared answers."""

import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Self

Answer = tuple[int, object]
"""Status, and the body: bytes, or a value that is sent as JSON."""

UNKNOWN_SCHEMA: Answer = (404, {"error_code": 40403, "message": "Schema not found"})
UNAUTHORIZED: Answer = (401, {"error_code": 401, "message": "Unauthorized"})


class SchemaRegistryServer(ThreadingHTTPServer):
    """Serves ``GET /schemas/ids/{id}`` within a ``with`` block.

    `answers` holds the answer for each path; `requested` lists the paths that were requested.
    `authorization` is the header that it wants; it answers 401 to another. With the files of a
    certificate and its key it speaks TLS.
    """

    def __init__(self, *certificate: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[str, Answer] = {}
        self.requested: list[str] = []
        self.authorization: str | None = None
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.server_port}"
        if certificate:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            file, key = certificate
            context.load_cert_chain(file, key)
            self.socket = context.wrap_socket(self.socket, server_side=True)
        self._thread = threading.Thread(target=self.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: SchemaRegistryServer

    def do_GET(self) -> None:
        self.server.requested.append(self.path)
        status, body = self.server.answers.get(self.path, UNKNOWN_SCHEMA)
        if self.headers["Authorization"] != self.server.authorization:
            status, body = UNAUTHORIZED
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass
