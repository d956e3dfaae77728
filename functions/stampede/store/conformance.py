"""What Stampede asks of an S3 endpoint: each check is a function that raises where it is not so.

The words under a check's name are what a report calls it.
"""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import md5

from stampede.errors import NotFound, StampedeError, StoreDown
from stampede.store.s3 import S3Objects

PART = 5 << 20  # S3's least
PAGE = 1000  # keys


def stored(bucket: S3Objects, prefix: str) -> None:
    """What is put is got, whatever the name and the bytes."""
    for name, data in (("a b+c=d,e", b"\0\xff" * 70_000), ("empty", b""), ("ünicode", b"x")):
        bucket.put(prefix + name, data)
        assert bucket.get(prefix + name) == data, name


def overwritten(bucket: S3Objects, prefix: str) -> None:
    """What was put last is got at once."""
    for number in range(20):
        bucket.put(f"{prefix}key", b"%d" % number)
        assert bucket.get(f"{prefix}key") == b"%d" % number, number


def ranges(bucket: S3Objects, prefix: str) -> None:
    """A range is those bytes; beyond the end there are none."""
    bucket.put(f"{prefix}ten", b"0123456789")
    for start, length, expected in ((3, 4, b"3456"), (8, 5, b"89"), (3, None, b"3456789")):
        assert bucket.get(f"{prefix}ten", start, length) == expected, (start, length)
    assert bucket.get(f"{prefix}ten", 10, 3) == b""


def absent(bucket: S3Objects, prefix: str) -> None:
    """What is not there, or was deleted, is not found; deleting it again is harmless."""
    bucket.put(f"{prefix}key", b"x")
    bucket.delete(f"{prefix}key")
    bucket.delete(f"{prefix}key")
    for ask in (bucket.get, bucket.head):
        try:
            ask(f"{prefix}key")
        except NotFound:
            continue
        raise AssertionError(f"{ask.__name__} found what was deleted")


def etags(bucket: S3Objects, prefix: str) -> None:
    """The etag of a PUT is the MD5 of its bytes."""
    data = bytes(range(256)) * 1000
    bucket.put(f"{prefix}key", data)
    found = bucket.head(f"{prefix}key")
    assert found.size == len(data), found
    assert found.etag == md5(data, usedforsecurity=False).hexdigest(), found


def listings(bucket: S3Objects, prefix: str) -> None:
    """A listing has all keys at once, in the order of their bytes, over pages, and after one."""
    names = [f"{prefix}{number:05}" for number in range(PAGE + 1)] + [f"{prefix}a!", f"{prefix}a/b"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: bucket.put(name, b""), names))
    assert [info.key for info in bucket.list(prefix)] == sorted(names)
    assert [info.key for info in bucket.list(prefix, names[PAGE - 2])] == sorted(names)[PAGE - 1 :]


def uploads(bucket: S3Objects, prefix: str) -> None:
    """An upload in parts is one object, seen when it is complete."""

    def pieces() -> Iterator[bytes]:
        for number in range(3):
            assert not list(bucket.list(f"{prefix}large")), "seen before it was complete"
            yield bytes([number]) * PART

    bucket.put_stream(f"{prefix}large", pieces())
    assert bucket.get(f"{prefix}large", PART - 1, 2) == b"\0\1"
    assert bucket.head(f"{prefix}large").size == 3 * PART


def broken_off(bucket: S3Objects, prefix: str) -> None:
    """An upload that breaks off leaves nothing."""

    def pieces() -> Iterator[bytes]:
        yield bytes(PART)
        raise StoreDown("as by a process that dies")

    with suppress(StoreDown):
        bucket.put_stream(f"{prefix}large", pieces())
    assert not list(bucket.list(f"{prefix}large"))


def racing(bucket: S3Objects, prefix: str) -> None:
    """Of two that write one name the object is one's or the other's, never of both."""
    sizes = (100_000, 200_000)
    with ThreadPoolExecutor(8) as pool:
        puts = [
            pool.submit(bucket.put, f"{prefix}key", bytes([each % 2 + 1]) * sizes[each % 2])
            for each in range(24)
        ]
        bucket.put(f"{prefix}key", b"\1" * sizes[0])
        while not all(put.done() for put in puts):
            data = bucket.get(f"{prefix}key")
            assert len(set(data)) == 1, "bytes of both"
            assert len(data) == sizes[data[0] - 1], len(data)
        for put in puts:
            put.result()


CHECKS: tuple[Callable[[S3Objects, str], None], ...] = (
    stored,
    overwritten,
    ranges,
    absent,
    etags,
    listings,
    uploads,
    broken_off,
    racing,
)


def run_checks(bucket: S3Objects) -> Iterator[tuple[str, str | None]]:
    """Each check's words and, where the endpoint fails it, the fault; leaves nothing behind."""
    prefix = f"check-{uuid.uuid4().hex}/"
    try:
        for number, check in enumerate(CHECKS):
            name = (check.__doc__ or check.__name__).strip().rstrip(".")
            try:
                check(bucket, f"{prefix}{number}/")
                yield name, None
            except (AssertionError, StampedeError) as error:
                yield name, str(error) or "not so"
    finally:
        for info in bucket.list(prefix):
            bucket.delete(info.key)
