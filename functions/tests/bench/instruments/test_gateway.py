import time

import pytest

from stampede.errors import NotFound
from stampede_bench.figures import Context
from stampede_bench.instruments.bucket import open_bucket
from stampede_bench.instruments.gateway import Gateway
from stampede_bench.instruments.servers import servers


@pytest.mark.usefixtures("ceph_packages")
def test_the_gateway_is_asked_for_what_the_client_asked_for(tmp_path) -> None:
    with servers(Context(True, tmp_path, lambda _: None), kafka=False) as running:
        bucket = open_bucket(running.settings("counted"))
        bucket.put("before", b"x")
        time.sleep(1)  # the log is written by a thread
        gateway = Gateway(running.ceph.gateway)
        for number in range(5):
            bucket.put(f"some/key {number}", bytes(1000 + number))
        for _ in range(3):
            bucket.get("some/key 1")
        with pytest.raises(NotFound):
            bucket.get("nothing")
        bucket.head("some/key 2")
        assert len(list(bucket.list("some/"))) == 5
        bucket.delete("some/key 3")
        deadline = time.monotonic() + 30
        while gateway.requests()["DELETE"] < 1 and time.monotonic() < deadline:
            time.sleep(0.1)
        found = gateway.requests()
        assert found == {"PUT": 5, "GET": 4, "HEAD": 1, "LIST": 1, "DELETE": 1}
