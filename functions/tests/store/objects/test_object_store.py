"""One contract for the three kinds of store. Of S3 there are two: Ceph, and versitygw."""

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from pydantic import SecretStr

from stampede.config.settings import Settings
from stampede.errors import NotFound, SetupError, StoreDown, StoreRefused
from stampede.store.conformance import CHECKS
from stampede.store.objects.address import StoreAddress
from stampede.store.objects.filesystem import DirectoryObjects
from stampede.store.objects.memory import MemoryObjects
from stampede.store.objects.object_store import Objects
from stampede.store.open import first_site, open_objects
from stampede.store.s3.bucket import S3Objects
from stampede_local.ports import free_port

SERVED = {"s3": "bucket", "versitygw": "gateway_bucket"}
"""Fixtures of the stores that a server has."""
SERVERS = [pytest.param(name, marks=pytest.mark.integration) for name in SERVED]


@pytest.fixture(params=["memory", "directory", *SERVERS])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Objects]:
    if request.param == "memory":
        yield open_objects(Settings(store="memory:"))
    elif request.param == "directory":
        yield open_objects(Settings(store=f"file://{tmp_path}/the%20store"))
    else:
        store = open_objects(request.getfixturevalue(SERVED[request.param]))
        yield store
        store.close()


@pytest.fixture(params=SERVERS)
def served(request: pytest.FixtureRequest) -> Settings:
    """A store that a server has."""
    settings: Settings = request.getfixturevalue(SERVED[request.param])
    return settings


@pytest.fixture(params=["memory", *SERVERS])
def bucket_like(request: pytest.FixtureRequest) -> Objects:
    """A store with the etags of S3."""
    if request.param == "memory":
        return MemoryObjects()
    return open_objects(request.getfixturevalue(SERVED[request.param]))


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_our_stores_pass_the_conformance_checks(bucket_like: Objects, check) -> None:
    check(bucket_like, "checks/")


def keys(objects: Objects, prefix: str, after: str = "") -> list[str]:
    return [info.key for info in objects.list(prefix, after)]


@pytest.mark.parametrize("data", [b"", b"x", b"\0\xff" * 70_000, memoryview(b"a view")])
def test_an_object_reads_back_as_it_was_put(objects: Objects, data: bytes | memoryview) -> None:
    objects.put("packs/60000/a b+c=d.parquet", data)
    assert objects.get("packs/60000/a b+c=d.parquet") == bytes(data)


def test_a_known_digest_is_used(objects: Objects) -> None:
    data = b"\0\xff" * 70_000
    objects.put("known", memoryview(data), sha256(data).hexdigest())
    assert objects.get("known") == data


def test_the_store_refuses_a_wrong_digest(served: Settings) -> None:
    objects = open_objects(served)
    with pytest.raises(StoreDown, match="SHA256Mismatch"):
        objects.put("wrong", b"one", sha256(b"other").hexdigest())
    assert keys(objects, "") == []


@pytest.mark.parametrize(
    ("start", "length", "expected"),
    [
        (0, None, b"0123456789"),
        (3, None, b"3456789"),
        (3, 4, b"3456"),
        (0, 1, b"0"),
        (8, 5, b"89"),
        (3, 0, b""),
        (10, None, b""),
        (99, 3, b""),
    ],
)
def test_ranges(objects: Objects, start: int, length: int | None, expected: bytes) -> None:
    objects.put("ten", b"0123456789")
    assert objects.get("ten", start, length) == expected


def test_an_empty_object(objects: Objects) -> None:
    objects.put("empty", b"")
    assert objects.get("empty") == b""
    assert objects.get("empty", 0, 5) == b""
    assert objects.head("empty").size == 0


@pytest.mark.parametrize("length", [None, 0, 1])
def test_a_missing_object_is_not_found(objects: Objects, length: int | None) -> None:
    objects.put("packs/60000/there", b"x")
    for key in ("absent", "packs", "packs/60000", "packs/60000/there2"):
        with pytest.raises(NotFound):
            objects.get(key, 0, length)
        with pytest.raises(NotFound):
            objects.head(key)
        objects.delete(key)
    assert keys(objects, "") == ["packs/60000/there"]


def test_delete(objects: Objects) -> None:
    objects.put("a", b"x")
    objects.delete("a")
    objects.delete("a")
    assert keys(objects, "") == []
    with pytest.raises(NotFound):
        objects.get("a")
    objects.put("a", b"y")
    assert objects.get("a") == b"y"


def test_listing_is_in_key_order(objects: Objects) -> None:
    names = [
        "a-b",
        "a.b",
        "a/b",
        "a/b-",
        "a/c/d",
        "a/ca",
        "a0",
        "b",
        "tables/x/00-1.parquet",
        "é/ü",
    ]
    for key in reversed(names):
        objects.put(key, key.encode())
    in_order = sorted(names, key=str.encode)
    assert keys(objects, "") == in_order
    for prefix in ("a", "a/", "a/c", "a/c/", "tables/x/", "z", "é/"):
        assert keys(objects, prefix) == [k for k in in_order if k.startswith(prefix)]
    for after in ("a", "a/b", "a/c", "a/c/d", "a/c/e", "b", "tables/x/00-1.parquet"):
        assert keys(objects, "", after) == [k for k in in_order if k > after]
        assert keys(objects, "a/", after) == [k for k in in_order if k[:2] == "a/" and k > after]


def test_folders_are_listed_without_what_is_in_them(objects: Objects) -> None:
    for key in ("a-b", "a/b", "a/c/d", "a/c/e/f", "a/d/g", "a0/h", "é/ü", "z"):
        objects.put(key, b"x")
    top, inner = objects.list_folder(""), objects.list_folder("a/")
    assert top.folders == ["a/", "a0/", "é/"]
    assert [info.key for info in top.objects] == ["a-b", "z"]
    assert inner.folders == ["a/c/", "a/d/"]
    assert inner.objects == list(objects.list("a/b"))
    objects.delete("a/d/g")
    assert objects.list_folder("a/").folders == ["a/c/"]  # a folder is there while its objects are
    assert objects.list_folder("none/") == objects.list_folder("a/d/") == ([], [])


def test_more_than_a_page_of_folders(objects: Objects) -> None:
    names = [f"many/{number:04}/" for number in range(1005)]
    for name in names:
        objects.put(f"{name}x", b"")
    assert objects.list_folder("many/") == (names, [])


def test_more_than_a_page_of_keys(objects: Objects) -> None:
    names = [f"many/{number:04}" for number in range(1005)]
    for key in names:
        objects.put(key, b"")
    assert keys(objects, "many/") == names
    assert keys(objects, "many/", names[1001]) == names[1002:]


def test_head_agrees_with_the_listing(objects: Objects) -> None:
    before = datetime.now(UTC) - timedelta(seconds=2)
    objects.put("a/b", b"12345")
    head, [listed] = objects.head("a/b"), objects.list("a/")
    assert (head.key, head.size) == ("a/b", 5)
    assert before <= head.modified <= datetime.now(UTC) + timedelta(seconds=2)
    assert (listed.key, listed.size, listed.etag) == (head.key, head.size, head.etag)
    # S3 gives a head's time to the second.
    assert abs(listed.modified - head.modified) <= timedelta(seconds=1)
    assert '"' not in head.etag


def test_an_object_is_never_a_mixture_of_two_writes(objects: Objects) -> None:
    """While two writers write one key, readers see one of the two contents."""
    size, torn = 300_000, []
    contents = [bytes([value]) * size for value in (1, 2)]
    objects.put("one", contents[0])
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            if objects.get("one") not in contents:
                torn.append(True)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    writers = [
        threading.Thread(target=lambda c=c: [objects.put("one", c) for _ in range(15)], daemon=True)
        for c in contents
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    done.set()
    reader.join()
    assert not torn
    assert keys(objects, "") == ["one"]


PART = 5 << 20  # the least that S3 takes


def test_a_stream_is_one_object(objects: Objects) -> None:
    pieces = [bytes([number]) * PART for number in range(3)] + [b"the rest"]
    objects.put_stream("a/streamed", iter(pieces))
    assert objects.get("a/streamed") == b"".join(pieces)
    assert objects.get("a/streamed", PART - 1, 2) == b"\0\1"
    [listed] = objects.list("")
    assert (listed.key, listed.size) == ("a/streamed", 3 * PART + 8)
    assert listed.etag == objects.head("a/streamed").etag
    objects.put_stream("a/streamed", [b"short"])
    assert objects.get("a/streamed") == b"short"


def test_a_stream_that_breaks_stores_nothing(objects: Objects) -> None:
    def broken() -> Iterator[bytes]:
        yield bytes(PART)
        assert keys(objects, "") == []
        raise NotFound("its source is gone")

    with pytest.raises(NotFound, match="its source is gone"):
        objects.put_stream("a/broken", broken())
    assert keys(objects, "") == []
    assert objects.forget_uploads(datetime.now(UTC) + timedelta(days=1)) == 0


def forgets_one(objects: Objects) -> None:
    now, hour = datetime.now(UTC), timedelta(hours=1)
    assert [objects.forget_uploads(now + off) for off in (-hour, hour, hour)] == [0, 1, 0]


def test_a_directory_forgets_what_a_killed_process_left(tmp_path: Path) -> None:
    (tmp_path / ".under-way").mkdir()
    (tmp_path / ".under-way" / "1-1-0").write_bytes(b"half")
    forgets_one(DirectoryObjects(tmp_path))


def test_a_bucket_forgets_what_a_killed_process_left(served: Settings) -> None:
    objects = S3Objects(first_site(served))
    objects._minio._create_multipart_upload(objects.bucket, "packs/a b", {})
    forgets_one(objects)


def test_a_store_tells_its_time(objects: Objects) -> None:
    """The stores of this test run on this machine."""
    before = list(objects.list(""))
    assert abs(objects.now() - datetime.now(UTC)) < timedelta(seconds=10)
    assert list(objects.list("")) == before


def test_a_store_tells_its_time_to_who_may_not_use_it(served: Settings) -> None:
    stranger = served.model_copy(update={"secret_key": SecretStr("wrong")})
    assert abs(open_objects(stranger).now() - datetime.now(UTC)) < timedelta(seconds=10)


def test_memory_takes_its_time_from_the_clock() -> None:
    then = datetime(2026, 11, 20, tzinfo=UTC)
    objects = MemoryObjects(clock=lambda: then)
    objects.put("a", b"")
    assert objects.head("a").modified == then


def test_a_directory_that_cannot_be_written_is_a_store_down(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreDown, match="directory failed"):
        DirectoryObjects(tmp_path / "file").put("a", b"x")


@pytest.mark.parametrize("key", ["", "/a", "a//b", "../a", "a/./b", "a/", ".hidden"])
def test_a_directory_refuses_keys_outside_it(tmp_path: Path, key: str) -> None:
    objects = DirectoryObjects(tmp_path / "store")
    with pytest.raises(ValueError, match="not a key"):
        objects.put(key, b"x")
    assert list(tmp_path.rglob("*")) == []


def test_a_directory_keeps_its_objects(tmp_path: Path) -> None:
    DirectoryObjects(tmp_path).put("a/b", b"x")
    assert (tmp_path / "a" / "b").read_bytes() == b"x"
    assert keys(DirectoryObjects(tmp_path), "") == ["a/b"]


def test_an_endpoint_that_does_not_answer_is_a_store_down() -> None:
    objects = S3Objects(StoreAddress(f"http://127.0.0.1:{free_port()}/bucket", "key", "secret"))
    for attempt in (
        lambda: objects.put("a", b"x"),
        lambda: objects.get("a"),
        lambda: objects.head("a"),
        lambda: list(objects.list("a")),
        lambda: objects.delete("a"),
        objects.ensure_bucket,
    ):
        with pytest.raises(StoreDown, match=r"127\.0\.0\.1"):
            attempt()


def test_ensure_bucket_makes_a_missing_bucket(served: Settings) -> None:
    other = served.model_copy(update={"store": served.store + "-new"})
    objects = open_objects(other)
    with pytest.raises(StoreDown, match="NoSuchBucket"):
        objects.put("a", b"x")
    with pytest.raises(StoreDown, match="NoSuchBucket"):
        objects.get("a")
    objects.ensure_bucket()
    objects.ensure_bucket()
    objects.put("a", b"x")
    assert objects.get("a") == b"x"


def test_a_wrong_key_is_a_store_down(served: Settings) -> None:
    objects = open_objects(served.model_copy(update={"access_key": "nobody"}))
    # versitygw has a code of its own.
    with pytest.raises(StoreRefused, match=r"(InvalidAccessKeyId|XAdminUserNotFound) at a; it"):
        objects.put("a", b"x")


@pytest.mark.parametrize(
    "store", ["", "ftp://a/b", "http://127.0.0.1:8400", "http:///bucket", "file://", "file://a/b"]
)
def test_a_url_that_is_no_store_is_refused(store: str) -> None:
    with pytest.raises(SetupError, match="not a store"):
        open_objects(Settings(store=store))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"store": "http://host/ab"}, "host/ab cannot be used: invalid bucket name ab"),
        ({"store": "http://host/bucket/folder"}, "invalid bucket name bucket/folder"),
        ({"store": "http://host:many/bucket"}, "host/bucket cannot be used: invalid port"),
        ({"store": "http://me:secret@host/bucket"}, "at host/bucket cannot be used: username"),
        (
            {"store": "http://host/bucket", "access_key": "me", "secret_key": ""},
            "secret key must be",
        ),
        ({"store": "http://host/bucket", "region": "a b"}, "invalid region"),
    ],
)
def test_a_malformed_s3_address_is_an_error_of_one_line(settings: dict, message: str) -> None:
    with pytest.raises(SetupError, match=message) as error:
        open_objects(Settings(**settings))
    assert "me:secret" not in error.value.message
