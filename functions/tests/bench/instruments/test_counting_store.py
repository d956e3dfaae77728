from stampede.store.objects.memory import MemoryObjects
from stampede_bench.instruments.counting_store import CountingStore


def test_requests_and_bytes_are_counted() -> None:
    counted = CountingStore(MemoryObjects())
    counted.put("a", b"12345")
    counted.put_stream("b", [b"12", b"3"])
    assert counted.get("a", 1, 2) == b"23"
    assert counted.head("a").size == 5
    assert [info.key for info in counted.list("")] == ["a", "b"]
    counted.delete("a")
    assert counted.requests == {"put": 3, "get": 1, "head": 1, "list": 1, "delete": 1}
    assert (counted.bytes["put"], counted.bytes["get"]) == (8, 2)
    counted.clear()
    assert not counted.requests
