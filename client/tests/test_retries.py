"""What is temporary is tried again, what is permanent is not, on a real server that fails."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import stampede_client
from stampede_client import retries

Script = list[tuple[int | None, dict[str, str], bytes]]
Failing = Callable[[Script], tuple[str, list[str]]]
GOOD = (200, {}, b'{"ledger": []}')
CUT = (None, {}, b"")


def problem(status: int, name: str, detail: str) -> tuple[int, dict[str, str], bytes]:
    document = {"type": f"urn:stampede:problem:{name}", "status": status, "detail": detail}
    headers = {"Content-Type": "application/problem+json"}
    return status, headers, json.dumps(document).encode()


@pytest.fixture
def failing(short_waits: None) -> Iterator[Failing]:
    """Serve the responses of a script, then the last one again; gives URL and paths asked for."""
    servers = []

    def start(script: Script) -> tuple[str, list[str]]:
        asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                status, headers, body = script[min(len(asked), len(script)) - 1]
                if status is None:
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
                    return
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", asked

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


TEMPORARY = {
    "busy": problem(429, "too-many-requests", "too many"),
    "store down": problem(503, "store-down", "the store does not answer"),
    "a proxy": (502, {"Content-Type": "text/html"}, b"<h1>Bad gateway</h1>"),
    "an ingress that lost the server": (499, {}, b""),
    "a cut connection": CUT,
}


@pytest.mark.parametrize("failure", TEMPORARY.values(), ids=TEMPORARY)
def test_temporary_failures_are_tried_again(failing: Failing, failure: tuple) -> None:
    url, asked = failing([failure, failure, GOOD])
    with stampede_client.connect(url) as st:
        assert st.ledger() == {"ledger": []}
    assert len(asked) == 3


@pytest.mark.anyio
async def test_the_async_client_tries_again_too(failing: Failing) -> None:
    url, asked = failing([CUT, TEMPORARY["busy"], GOOD])
    async with stampede_client.connect_async(url) as st:
        assert await st.ledger() == {"ledger": []}
    assert len(asked) == 3


PERMANENT = {
    "no such alert": (problem(404, "unknown-alert", "no alert 7"), stampede_client.NotFound),
    "deleted": (problem(410, "gone", "past its retention"), stampede_client.Gone),
    "damaged": (problem(502, "damaged-image", "lost"), stampede_client.Damaged),
    "no token": (problem(401, "unauthorized", "no token"), stampede_client.AccessDenied),
    "a bug": (problem(500, "internal", "see the log"), stampede_client.StampedeClientError),
    "another server": ((404, {}, b"nothing here"), stampede_client.UnexpectedResponse),
    "an HTML page": ((200, {}, b"<html>"), stampede_client.UnexpectedResponse),
}


@pytest.mark.parametrize(("response", "error"), PERMANENT.values(), ids=PERMANENT)
def test_permanent_failures_are_not(failing: Failing, response: tuple, error: type) -> None:
    url, asked = failing([response, GOOD])
    with stampede_client.connect(url) as st, pytest.raises(error):
        st.alert(7)
    assert len(asked) == 1


def test_it_gives_up_and_says_what_to_do(failing: Failing) -> None:
    url, asked = failing([TEMPORARY["store down"]])
    expected = "the store does not answer .*try again later"
    with stampede_client.connect(url) as st, pytest.raises(stampede_client.Unavailable) as caught:
        st.ledger()
    assert caught.match(expected)
    assert len(asked) == retries.ATTEMPTS


def test_no_server_at_all_is_said_with_the_url() -> None:
    began = time.monotonic()
    with (
        stampede_client.connect("http://127.0.0.1:9") as st,
        pytest.raises(stampede_client.Unavailable, match=r"no answer from http://127.0.0.1:9"),
    ):
        st.ledger()
    assert 1 < time.monotonic() - began < 2.5  # it may be starting again, but not for long


def test_a_server_without_tls_is_not_asked_twice(failing: Failing) -> None:
    url, asked = failing([GOOD])
    began = time.monotonic()
    with (
        stampede_client.connect(url.replace("http:", "https:")) as st,
        pytest.raises(stampede_client.Unavailable, match="try http:// in place of https://"),
    ):
        st.ledger()
    assert asked == []
    assert time.monotonic() - began < 1


def test_waits_grow_and_obey_the_server() -> None:
    own = [retries.wait(attempt, None, 0.0, 0.5) for attempt in range(1, retries.ATTEMPTS + 1)]
    assert own == [0.5, 1.0, 2.0, 4.0, 8.0, None]
    assert retries.wait(1, "5", 0.0, 0.5) == 5.0
    assert retries.wait(1, formatdate(1007, usegmt=True), 1000.0, 0.5) == 7.0
    assert retries.wait(1, "soon", 0.0, 0.5) == 0.5
    assert retries.wait(1, "3600", 0.0, 0.5) is None
