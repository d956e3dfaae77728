"""Keys in files: when they are read, and that every kind of request follows them."""

import asyncio
import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from stampede.config.secret_files import read_keys
from stampede.config.settings import Settings
from stampede.errors import SetupError, StoreRefused
from stampede.store.ceph.bucket_notifications import NotifyingBucket
from stampede.store.ceph.quotas import usage
from stampede.store.objects.address import KEY_FILES
from stampede.store.open import first_site, open_objects, second_site
from stampede.store.s3.bucket import S3Objects
from stampede.store.s3.credentials import KeyPair, S3Keys
from stampede.telemetry.logs import configure_logs
from stampede_local.ceph import LocalCeph
from tests.support.mounted_secret import MountedSecret, s3_files
from tests.support.store.rotated_user import RotatedUser

OLD, NEW = KeyPair("O" * 20, "old" * 10), KeyPair("N" * 20, "new" * 10)
URL = "http://host/bucket"


@pytest.fixture
def secret(tmp_path: Path) -> MountedSecret:
    return MountedSecret(tmp_path / "keys", s3_files(*OLD))


def keys_in(secret: MountedSecret) -> S3Keys:
    return S3Keys(first_site(Settings(store=URL, keys=str(secret))))


def test_files_come_before_settings(secret: MountedSecret, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "access_key": "mine",
        "secret_key": "s",
        "replica_access_key": "theirs",
    }
    settings = Settings(store=URL, keys=str(secret), replica_keys=str(tmp_path), **given)
    assert S3Keys(first_site(settings)).current == OLD
    assert second_site(settings).access_key == "theirs", "there are no files"
    again = Settings(**first_site(settings).as_second_site())
    assert second_site(again) == first_site(settings)


def test_keys_are_read_again_when_they_are_refused(
    secret: MountedSecret, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs()
    keys = keys_in(secret)
    assert not keys.refused(OLD), "the files still hold them"
    secret.change(s3_files(f"{NEW.access_key}\n", f" {NEW.secret_key}\n"))
    assert keys.current == OLD, "nobody has refused them"
    assert keys.refused(OLD)
    assert keys.current == NEW
    assert keys.refused(OLD), "another request, which was sent with the old ones"
    assert not keys.refused(NEW)
    lines = capsys.readouterr()
    said = [json.loads(line) for line in (lines.out + lines.err).splitlines()]
    assert [(line["event"], line["directory"]) for line in said] == [
        ("keys were read again", str(secret))
    ]


@pytest.mark.parametrize(
    "files",
    [
        {},
        s3_files("", ""),
        s3_files(NEW.access_key, " "),
        s3_files("caf\xe9", "open sesame"),
        s3_files("key", "open\nsesame"),
    ],
)
def test_files_that_hold_no_keys_change_nothing(
    secret: MountedSecret, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logs()
    keys = keys_in(secret)
    secret.change(files)
    assert not keys.refused(OLD)
    assert keys.current == OLD
    shown = "".join(capsys.readouterr())
    assert "sesame" not in shown
    complete = files and all(text.strip() for text in files.values())
    assert ("new keys cannot be used" in shown) == bool(complete)
    secret.change(s3_files(*NEW))
    assert keys.refused(OLD)


def test_keys_that_are_no_files_are_never_others() -> None:
    keys = S3Keys(first_site(Settings(store=URL, access_key="a", secret_key="b")))
    assert not keys.refused(keys.current)


def test_files_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / KEY_FILES[0]).mkdir()  # root may read every file
    (tmp_path / KEY_FILES[1]).mkdir()
    with pytest.raises(SetupError, match=r"the keys in .* cannot be read"):
        first_site(Settings(store=URL, keys=str(tmp_path)))


def test_a_pair_is_never_half_old(secret: MountedSecret) -> None:
    done = threading.Event()

    def change() -> None:
        for number in range(300):
            secret.change(s3_files(f"access-{number}", f"secret-{number}"))
        done.set()

    changing = threading.Thread(target=change)
    changing.start()
    pairs = set()
    while not done.is_set():
        pairs.add(read_keys(str(secret), KEY_FILES))
    changing.join()
    numbers = [[key.rpartition("-")[2] for key in pair] for pair in pairs - {None, tuple(OLD)}]
    assert len(numbers) > 10
    assert all(access == secret for access, secret in numbers)


# Each kind of request, and what makes it: minio-py, obstore, or our own signature.
def stream(objects: S3Objects) -> None:
    objects.put_stream("b", [b"data"])


def asynchronous(objects: S3Objects) -> None:
    """None says "ask `get`", which `read` does; then the next one succeeds."""

    async def get() -> None:
        gets = objects.async_gets()
        try:
            if await gets.get("a", 0, 4) is None:
                objects.get("a", 0, 4)
                assert await gets.get("a", 0, 4) == b"data"
        finally:
            await gets.close()

    asyncio.run(get())


REQUESTS: dict[str, Callable[[S3Objects], object]] = {
    "get": lambda objects: objects.get("a"),
    "get odd name": lambda objects: objects.get("odd/"),
    "async get": asynchronous,
    "head": lambda objects: objects.head("a"),
    "list": lambda objects: list(objects.list("")),
    "list folder": lambda objects: objects.list_folder(""),
    "put": lambda objects: objects.put("b", b"data"),
    "put with digest": lambda objects: objects.put("b", b"data", sha256(b"data").hexdigest()),
    "stream": stream,
    "delete": lambda objects: objects.delete("b"),
    "uploads": lambda objects: objects.forget_uploads(datetime.now(UTC)),
    "bucket": lambda objects: objects.ensure_bucket(),
}


@pytest.fixture(scope="module")
def user(ceph: LocalCeph, tmp_path_factory: pytest.TempPathFactory) -> RotatedUser:
    return RotatedUser(ceph, "rotating", tmp_path_factory.mktemp("user") / "keys")


def opened(user: RotatedUser) -> S3Objects:
    """The user's bucket, with connections and a client of its own."""
    objects = open_objects(user.settings)
    assert isinstance(objects, S3Objects)
    return objects


def test_every_kind_of_request_follows_the_files(user: RotatedUser) -> None:
    sites = {name: opened(user) for name in REQUESTS}
    administration = NotifyingBucket(first_site(user.settings))
    for key in ("a", "b", "odd/"):
        open_objects(user.settings).put(key, b"data")
    for name, objects in sites.items():
        REQUESTS[name](objects)
    old, _ = user.keys, user.make_key()
    user.remove_key(old)
    for name, objects in sites.items():
        with pytest.raises(StoreRefused, match=r"InvalidAccessKeyId|AccessDenied"):
            REQUESTS[name](objects)
    address = first_site(user.settings)
    user.secret.change(s3_files(*user.keys))
    for name, objects in sites.items():
        REQUESTS[name](objects)
        assert objects._keys.current == user.keys, name
    administration.topics()  # raises if it is refused; other tests may have made some
    administration.notifications()
    assert usage(address).stored_bytes is not None


def test_a_wrong_secret_key_is_refused_too(user: RotatedUser) -> None:
    user.secret.change(s3_files(user.keys.access_key, "wrong"))
    sites = {name: opened(user) for name in REQUESTS}
    for name, objects in sites.items():
        with pytest.raises(StoreRefused, match=r"SignatureDoesNotMatch|AccessDenied"):
            REQUESTS[name](objects)
    user.secret.change(s3_files(*user.keys))
    for name, objects in sites.items():
        REQUESTS[name](objects)


def test_wrong_new_keys_do_no_harm_to_a_process_at_work(user: RotatedUser) -> None:
    objects = opened(user)
    user.secret.change(s3_files("nobody", "knows"))
    for send in REQUESTS.values():
        send(objects)
    with pytest.raises(StoreRefused, match="InvalidAccessKeyId"):
        open_objects(user.settings).get("a")
    user.secret.change(s3_files(*user.keys))
