import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from stampede.errors import StampedeError
from stampede_bench.peers.reading import AT_ONCE, Reader, asked, parts_of
from stampede_local.process import Process


@contextmanager
def served() -> Iterator[str]:
    """A server that answers with as many bytes as the path says, and 404 with those of 0."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            size = int(self.path[1:])
            self.send_response(200 if size else 404)
            self.send_header("Content-Length", str(size or 7))
            self.end_headers()
            self.wfile.write(b"x" * size or b"missing")

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def reader(tmp_path, url: str, ids: range) -> Reader:
    process = Process("system", [], tmp_path / "log")
    return Reader("a system: a thing", process, url, lambda size: f"/{size}", ids)


@pytest.mark.parametrize("threads", AT_ONCE)
def test_the_bytes_of_all_answers_are_counted(tmp_path, threads: int) -> None:
    with served() as url:
        assert asked(reader(tmp_path, url, range(0)), range(1, 21), threads) == 210


def test_a_system_that_lacks_an_alert_is_an_error(tmp_path) -> None:
    with served() as url, pytest.raises(StampedeError, match="a system: a thing: /0 was answered"):
        asked(reader(tmp_path, url, range(0)), [5, 0], 1)


def test_each_id_is_asked_for_in_one_turn_only(tmp_path) -> None:
    parts = parts_of(reader(tmp_path, "", range(100)), 3)
    assert len(parts) == 1 + 3 * len(AT_ONCE)
    assert sorted(each for part in parts for each in part) == [*range(100)]
    assert min(map(len, parts)) >= 14
