"""Many clients of one server."""

from stampede_bench.instruments.crowd import crowd
from tests.support.store.faulty_s3 import answer, closed, faulty_s3

OK = answer("200 OK", b"an image")


def test_every_client_keeps_its_connection() -> None:
    with faulty_s3(OK) as server:
        found = crowd(f"http://{server.host}", [f"/{number}" for number in range(60)], 20)
    assert found.failures == 0
    assert len(found.milliseconds) == 60
    assert min(found.milliseconds) > 0
    assert found.seconds > 0
    assert sorted(server.requests) == sorted(f"GET /{number} HTTP/1.1" for number in range(60))
    assert server.connections == 20


def test_what_fails_is_counted_and_the_rest_is_timed() -> None:
    empty, refused = answer("200 OK"), answer("429 Too Many Requests", b"wait")
    with faulty_s3(OK, closed, empty, OK, refused, OK) as server:
        found = crowd(f"http://{server.host}", ["/"] * 6, 1)
    assert found.failures == 3
    assert len(found.milliseconds) == 3
