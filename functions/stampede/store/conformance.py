"""What Stampede requires of a store: each check is a function that raises `NotConformant`.

The first line of a check's docstring is its name in reports.
"""

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import md5

from stampede.errors import NotFound, StampedeError, StoreDown
from stampede.store.objects.object_store import Objects
from stampede.store.s3.bucket import S3Objects

PART = 5 << 20  # the least that S3 takes
PAGE = 1000  # keys


class NotConformant(Exception):
    """The store does not do what Stampede requires."""


def require(condition: bool, detail: object = "") -> None:
    """Raise `NotConformant` with `detail` unless `condition` holds."""
    if not condition:
        raise NotConformant(str(detail))


def stored(bucket: Objects, prefix: str) -> None:
    """An object reads back as it was written, whatever its key and bytes."""
    for name, data in (("a b+c=d,e", b"\0\xff" * 70_000), ("empty", b""), ("ünicode", b"x")):
        bucket.put(prefix + name, data)
        require(bucket.get(prefix + name) == data, name)


def overwritten(bucket: Objects, prefix: str) -> None:
    """A GET after a PUT returns the new content."""
    for number in range(20):
        bucket.put(f"{prefix}key", b"%d" % number)
        require(bucket.get(f"{prefix}key") == b"%d" % number, number)


def ranges(bucket: Objects, prefix: str) -> None:
    """A ranged GET returns those bytes, and none beyond the end."""
    bucket.put(f"{prefix}ten", b"0123456789")
    for start, length, expected in (
        (3, 4, b"3456"),
        (8, 5, b"89"),
        (3, None, b"3456789"),
        (10, 3, b""),
    ):
        require(bucket.get(f"{prefix}ten", start, length) == expected, (start, length))


def absent(bucket: Objects, prefix: str) -> None:
    """A missing or deleted object is not found; deleting it again is harmless."""
    bucket.put(f"{prefix}key", b"x")
    bucket.delete(f"{prefix}key")
    bucket.delete(f"{prefix}key")
    for request in (bucket.get, bucket.head):
        with suppress(NotFound):
            request(f"{prefix}key")
            raise NotConformant(f"{request.__name__} found what was deleted")


def etags(bucket: Objects, prefix: str) -> None:
    """The etag of a PUT is the MD5 of its bytes."""
    data = bytes(range(256)) * 1000
    bucket.put(f"{prefix}key", data)
    info = bucket.head(f"{prefix}key")
    require(info.size == len(data), info)
    require(info.etag == md5(data, usedforsecurity=False).hexdigest(), info)


def listings(bucket: Objects, prefix: str) -> None:
    """A listing is complete, in byte order over all pages, and can start after a key."""
    names = [f"{prefix}{number:05}" for number in range(PAGE + 1)] + [f"{prefix}a!", f"{prefix}a/b"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda name: bucket.put(name, b""), names))
    require([info.key for info in bucket.list(prefix)] == sorted(names))
    after = [info.key for info in bucket.list(prefix, names[PAGE - 2])]
    require(after == sorted(names)[PAGE - 1 :])


def folders(bucket: Objects, prefix: str) -> None:
    """A listing with a delimiter shows each folder once, over all pages, and not what is in it."""
    names = [f"{prefix}{number:05}/" for number in range(PAGE + 1)]
    keys = [f"{name}{key}" for name in names for key in ("a", "b/c")] + [f"{prefix}0", f"{prefix}z"]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: bucket.put(key, b""), keys))
    found = bucket.list_folder(prefix)
    require(found.folders == names)
    require([info.key for info in found.objects] == keys[-2:])
    inner = bucket.list_folder(names[-1])
    require(inner.folders == [f"{names[-1]}b/"], inner)
    require([info.key for info in inner.objects] == [f"{names[-1]}a"], inner)


def uploads(bucket: Objects, prefix: str) -> None:
    """A multipart upload is one object, visible once it is complete."""

    def pieces() -> Iterator[bytes]:
        for number in range(3):
            require(not list(bucket.list(f"{prefix}large")), "seen before it was complete")
            yield bytes([number]) * PART

    bucket.put_stream(f"{prefix}large", pieces())
    require(bucket.get(f"{prefix}large", PART - 1, 2) == b"\0\1")
    require(bucket.head(f"{prefix}large").size == 3 * PART)


def broken_off(bucket: Objects, prefix: str) -> None:
    """An aborted multipart upload leaves nothing."""

    def pieces() -> Iterator[bytes]:
        yield bytes(PART)
        raise StoreDown("as if the process died")

    with suppress(StoreDown):
        bucket.put_stream(f"{prefix}large", pieces())
    require(not list(bucket.list(f"{prefix}large")))


def racing(bucket: Objects, prefix: str) -> None:
    """Of two concurrent PUTs of one key, readers see one or the other, never a mixture."""
    sizes = (100_000, 200_000)
    with ThreadPoolExecutor(8) as pool:
        puts = [
            pool.submit(bucket.put, f"{prefix}key", bytes([number % 2 + 1]) * sizes[number % 2])
            for number in range(24)
        ]
        bucket.put(f"{prefix}key", b"\1" * sizes[0])
        while not all(put.done() for put in puts):
            data = bucket.get(f"{prefix}key")
            require(len(set(data)) == 1, "bytes of both")
            require(len(data) == sizes[data[0] - 1], len(data))
        for put in puts:
            put.result()


CHECKS: tuple[Callable[[Objects, str], None], ...] = (
    stored,
    overwritten,
    ranges,
    absent,
    etags,
    listings,
    folders,
    uploads,
    broken_off,
    racing,
)


def run_checks(bucket: Objects, prefix: str = "") -> Iterator[tuple[str, str | None]]:
    """Each check's name and, if the store fails it, the fault.

    Everything is written under a prefix of its own below `prefix`, and deleted again.
    """
    prefix = f"{prefix}check-{uuid.uuid4().hex}/"
    try:
        for number, check in enumerate(CHECKS):
            name = (check.__doc__ or check.__name__).strip().rstrip(".")
            try:
                check(bucket, f"{prefix}{number}/")
            except (NotConformant, StampedeError) as error:
                yield name, str(error) or "not so"
            else:
                yield name, None
    finally:
        for info in bucket.list(prefix):
            bucket.delete(info.key)
        if isinstance(bucket, S3Objects):
            bucket.forget_versions(prefix)
