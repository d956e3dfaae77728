import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stampede.errors import StampedeError
from stampede_bench.instruments.http_load import requests


class Answers(BaseHTTPRequestHandler):
    """Answers `/good` with four bytes, `/empty` with none, and nothing else."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"FITS" if self.path == "/good" else b""
        self.send_response(200 if self.path in ("/good", "/empty") else 404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_every_request_is_timed(url: str) -> None:
    found = requests(url, ["/good"] * 10, 2)
    assert len(found.milliseconds) == 10
    assert 0 < min(found.milliseconds) <= 1e3 * found.seconds


@pytest.mark.parametrize("path", ["/empty", "/missing"])
def test_an_error_or_an_empty_answer_ends_it(url: str, path: str) -> None:
    with pytest.raises(StampedeError, match=path):
        requests(url, ["/good", path], 1)
