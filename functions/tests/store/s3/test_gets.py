"""What a store may do to a request: one list of faults for both S3 clients, and more for GETs."""

import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from stampede.config.settings import Settings
from stampede.errors import NotFound, SetupError, StoreDown
from stampede.store.objects.address import StoreAddress
from stampede.store.open import first_site, open_objects, open_store
from stampede.store.s3 import bucket as s3
from stampede.store.s3.bucket import S3Objects
from stampede_local.ports import free_port
from stampede_local.tls import make_certificate
from tests.support.store.faulty_s3 import (
    Answer,
    FaultyS3,
    answer,
    closed,
    error,
    faulty_s3,
    nonsense,
    part,
    stalled,
)

KEY = "packs/60000/a b+c=d,é.parquet"
FOUR = part(b"4567", 4, 10)

Read = Callable[[S3Objects], object]
READS: dict[str, Read] = {
    "get": lambda objects: objects.get(KEY, 4, 4),
    "get to the end": lambda objects: objects.get(KEY, 4),
    "get all": lambda objects: objects.get(KEY),
    "list": lambda objects: list(objects.list("packs/")),
    "put": lambda objects: objects.put(KEY, b"x"),
    "delete": lambda objects: objects.delete(KEY),
}


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Makes clients give a silent store up soon.

    For silent stores only: on a busy host any response may take as long, and be asked for again.
    """
    return lambda: monkeypatch.setattr(s3, "READ_SECONDS", 0.5)


def objects_of(server: FaultyS3, scheme: str = "http", **more) -> S3Objects:
    address = StoreAddress(f"{scheme}://{server.host}/bucket", "key", "secret", **more)
    objects = open_store(address)
    assert isinstance(objects, S3Objects)
    return objects


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize(
    ("fault", "message", "tries"),
    [
        (error("503 Slow Down", "SlowDown"), "answered SlowDown at packs/|failed at packs/", 3),
        (error("500 Error", "InternalError"), "answered InternalError at packs/|failed at", 3),
        (error("403 Forbidden", "InvalidAccessKeyId"), "answered InvalidAccessKeyId at packs/", 1),
        (error("403 Forbidden", "SignatureDoesNotMatch"), "answered SignatureDoesNotMatch at", 1),
        (error("403 Forbidden", "RequestTimeTooSkewed"), "answered RequestTimeTooSkewed at", 1),
        (error("404 Not Found", "NoSuchBucket"), "answered NoSuchBucket at packs/", 1),
        (answer("404 Not Found", b"<html>nothing here</html>"), "failed at packs/", 1),
        (answer("502 Bad Gateway", b"<html>a proxy's</html>"), "failed at packs/", 3),
        (closed, "failed at packs/", 3),
        (stalled, "failed at packs/", 3),
    ],
    ids=["503", "500", "key", "signature", "clock", "bucket", "html", "502", "closed", "stalled"],
)
def test_a_faulty_store_is_a_store_down(
    read: Read, fault: Answer, message: str, tries: int, soon: Callable[[], None]
) -> None:
    if fault is stalled:
        soon()
    with faulty_s3(fault) as server:
        with pytest.raises(StoreDown, match=message) as caught:
            read(objects_of(server))
        until = time.monotonic() + 5  # the server may see a request after the client has gone
        while len(server.requests) < tries and time.monotonic() < until:
            time.sleep(0.01)
    assert len(server.requests) == tries
    assert server.host in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "fault",
    [error("503 Slow Down", "SlowDown"), closed, stalled, part(b"45", 4, 10, missing=2)],
    ids=["503", "closed", "stalled", "cut"],
)
def test_a_get_is_tried_again(fault: Answer, soon: Callable[[], None]) -> None:
    if fault is stalled:
        soon()
    with faulty_s3(fault, FOUR) as server:
        assert objects_of(server).get(KEY, 4, 4) == b"4567"
    assert len(server.requests) == 2
    assert server.requests[0].startswith("GET /bucket/packs/60000/a%20b%2Bc%3Dd%2C%C3%A9.parquet ")


@pytest.mark.parametrize("code", ["NoSuchKey", "NoSuchObject", "ResourceNotFound"])
@pytest.mark.parametrize("length", [4, None])
def test_an_absent_object_is_not_found(code: str, length: int | None) -> None:
    message = "the store has no object packs/60000/a b"
    with faulty_s3(error("404 Not Found", code)) as server, pytest.raises(NotFound, match=message):
        objects_of(server).get(KEY, 4, length)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "wrong",
    [
        part(b"0123", 0, 10),
        part(b"45", 4, 10, missing=2),
        answer("200 OK", b"0123456789", 'ETag: "x"'),
        answer("200 OK", b"an error page of something in between"),
        answer("206 Partial Content", b"456789", "Content-Range: bytes 4-7/10"),
        answer("206 Partial Content", b"45", "Content-Range: bytes 4-7/10"),
        nonsense,
    ],
    ids=["another range", "cut short", "all of it", "a page", "more", "fewer", "nonsense"],
)
def test_other_bytes_than_those_asked_for_are_a_store_down(wrong: Answer) -> None:
    with faulty_s3(wrong) as server, pytest.raises(StoreDown, match="failed at packs/"):
        objects_of(server).get(KEY, 4, 4)


def test_a_range_beyond_the_end_is_empty() -> None:
    with faulty_s3(error("416 Requested Range Not Satisfiable", "InvalidRange")) as server:
        assert objects_of(server).get(KEY, 10, 4) == objects_of(server).get(KEY, 10) == b""


def test_a_silent_store_is_given_up_in_time(soon: Callable[[], None]) -> None:
    soon()
    began = time.monotonic()
    with faulty_s3(stalled) as server, pytest.raises(StoreDown):
        objects_of(server).get(KEY, 4, 4)
    assert 3 * s3.READ_SECONDS <= time.monotonic() - began < 10 * s3.READ_SECONDS


def test_a_signal_ends_a_get_at_once() -> None:
    """In the main thread, where Python handles signals; as with Ctrl-C."""
    with faulty_s3(stalled) as server:
        objects, began = objects_of(server), time.monotonic()
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            objects.get(KEY, 4, 4)
    assert time.monotonic() - began < s3.READ_SECONDS / 2


@pytest.mark.parametrize("length", [4, None])
def test_an_answer_that_does_not_announce_its_length_is_taken(length: int | None) -> None:
    def chunked(connection: socket.socket) -> bool:
        status = "206 Partial Content\r\nContent-Range: bytes 0-3/4" if length else "200 OK"
        head = f"HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.sendall(head.encode() + b"4\r\n0123\r\n0\r\n\r\n")
        return True

    with faulty_s3(chunked) as server:
        assert objects_of(server).get(KEY, 0, length) == b"0123"


@pytest.mark.parametrize(
    ("key", "asked"),
    [("a//b", "a//b"), ("/a", "/a"), ("a/", "a/"), ("a\nb", "a%0Ab"), ("a\x7fb", "a%7Fb")],
)
def test_the_key_of_a_foreign_object_is_asked_for_as_it_is(key: str, asked: str) -> None:
    with faulty_s3(part(b"x", 0, 1)) as server:
        objects_of(server).get(key, 0, 1)
    assert server.requests == [f"GET /bucket/{asked} HTTP/1.1"]


@pytest.mark.parametrize("name", ["access_key", "secret_key", "region"])
@pytest.mark.parametrize("wrong", ["se\nsame", "se\0same", "se\r", "sés"])
def test_a_setting_that_fits_no_header_is_an_error_that_hides_it(name: str, wrong: str) -> None:
    keys: dict[str, Any] = {"access_key": "key", "secret_key": "secret", name: wrong}
    fault = rf"{name} has a character at position \d that is not printable ASCII"
    with pytest.raises(SetupError, match=f"host/bucket cannot be used: {fault}") as caught:
        open_store(StoreAddress("http://host/bucket", **keys))
    assert "same" not in caught.value.message


LARGE = 256 << 20
GETTING_LARGE = """
import re, sys
from pathlib import Path
from stampede.store.objects.address import StoreAddress
from stampede.store.s3.bucket import S3Objects
objects, size = S3Objects(StoreAddress(sys.argv[1], "key", "secret")), int(sys.argv[2])
def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) << 10
before = peak()
data = objects.get("a", 0, size if sys.argv[3] == "range" else None)
assert type(data) is bytes and len(data) == size and not data.strip(b"x")
print(peak() - before)
"""


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the peak")
@pytest.mark.parametrize("what", ["range", "all"])
def test_a_large_get_takes_its_size_in_memory(what: str) -> None:
    def send(connection: socket.socket) -> bool:
        status = "206 Partial Content" if what == "range" else "200 OK"
        head = f"HTTP/1.1 {status}\r\nContent-Length: {LARGE}\r\n"
        head += f"Content-Range: bytes 0-{LARGE - 1}/{LARGE}\r\n" if what == "range" else ""
        connection.sendall(f"{head}\r\n".encode())
        for _ in range(LARGE >> 20):
            connection.sendall(b"x" * (1 << 20))
        return True

    with faulty_s3(send) as server:
        url = f"http://{server.host}/bucket"
        command = [sys.executable, "-c", GETTING_LARGE, url, str(LARGE), what]
        ended = subprocess.run(command, capture_output=True, check=True)
    assert LARGE <= int(ended.stdout) < 1.2 * LARGE


def test_the_environment_changes_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """Settings name the store and its keys: not the variables of other S3 clients, nor a proxy."""
    nowhere = f"http://127.0.0.1:{free_port()}"
    for name, value in {
        "AWS_SESSION_TOKEN": "a-token",
        "AWS_ENDPOINT_URL_S3": nowhere,
        "AWS_SKIP_SIGNATURE": "true",
        "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
        "HTTP_PROXY": nowhere,
        "http_proxy": nowhere,
        "ALL_PROXY": nowhere,
    }.items():
        monkeypatch.setenv(name, value)
    with faulty_s3(FOUR) as server:
        assert objects_of(server).get(KEY, 4, 4) == b"4567"
    assert "x-amz-security-token" not in server.heads[0]
    assert "aws4-hmac-sha256 credential=key/" in server.heads[0]


def test_without_keys_nothing_is_signed() -> None:
    with faulty_s3(FOUR) as server:
        objects = open_store(StoreAddress(f"http://{server.host}/bucket"))
        assert objects.get(KEY, 4, 4) == b"4567"
    assert "authorization" not in server.heads[0]


def serving(certificate: Path, key: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return context


def signed(folder: Path) -> tuple[Path, Path, Path]:
    """An authority's certificate, and the certificate and key of a server that it signed."""
    authority, ca_key = folder / "ca.pem", folder / "ca.key"
    make_certificate(authority, ca_key)
    certificate, key, request = folder / "cert.pem", folder / "cert.key", folder / "request"
    extensions = folder / "extensions"
    extensions.write_text("subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n")
    names = ("-nodes", "-subj", "/CN=store", "-keyout", str(key), "-out", str(request))
    ca = ("-CA", str(authority), "-CAkey", str(ca_key), "-CAcreateserial", "-days", "2")
    made = ("-in", str(request), "-out", str(certificate), "-extfile", str(extensions))
    for command in (("req", "-newkey", "rsa:2048", *names), ("x509", "-req", *made, *ca)):
        subprocess.run(["openssl", *command], check=True, capture_output=True)
    return authority, certificate, key


def test_tls_needs_a_store_that_the_authority_has_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, certificate, key = signed(tmp_path)
    with faulty_s3(FOUR, context=serving(certificate, key)) as server:
        with pytest.raises(StoreDown, match=r"failed at packs/.*: UnknownIssuer"):
            objects_of(server, "https").get(KEY, 4, 4)
        assert server.requests == []
        assert objects_of(server, "https", ca_file=authority).get(KEY, 4, 4) == b"4567"
        assert "user-agent: object_store" in server.heads[0]
        monkeypatch.setenv("SSL_CERT_FILE", str(authority))
        assert objects_of(server, "https").get(KEY, 4, 4) == b"4567"


@pytest.mark.long
def test_an_authority_of_the_settings_replaces_the_public_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "public").mkdir()
    public, certificate, key = signed(tmp_path / "public")
    own = signed(tmp_path)[0]
    monkeypatch.setenv("SSL_CERT_FILE", str(public))
    with faulty_s3(FOUR, context=serving(certificate, key)) as server:
        with pytest.raises(StoreDown, match="failed at packs/"):
            objects_of(server, "https", ca_file=own).get(KEY, 4, 4)
        assert server.requests == []
        assert os.environ["SSL_CERT_FILE"] == str(public)
        assert objects_of(server, "https").get(KEY, 4, 4) == b"4567"


def test_a_self_signed_certificate_is_its_own_authority(tmp_path: Path) -> None:
    """As `openssl req -x509` makes it: OpenSSL trusts it if told to."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make_certificate(certificate, key)
    with faulty_s3(FOUR, context=serving(certificate, key)) as server:
        with pytest.raises(StoreDown, match=r"failed at packs/.*certificate"):
            objects_of(server, "https").get(KEY, 4, 4)
        objects = objects_of(server, "https", ca_file=certificate)
        for _ in range(2):
            assert objects.get(KEY, 4, 4) == b"4567"


def test_a_certificate_authority_that_cannot_be_read_is_an_error_of_one_line(
    tmp_path: Path,
) -> None:
    absent, wrong = tmp_path / "absent.pem", tmp_path / "wrong.pem"
    wrong.write_text("-----BEGIN CERTIFICATE-----\nno base64\n-----END CERTIFICATE-----\n")
    for file in (absent, wrong):
        with pytest.raises(SetupError, match="host/bucket cannot be used: ") as caught:
            open_store(StoreAddress("https://host/bucket", "key", "secret", ca_file=file))
        assert "\n" not in caught.value.message


GETTING = """
import sys, threading
from stampede.store.objects.address import StoreAddress
from stampede.store.s3.bucket import S3Objects
objects = S3Objects(StoreAddress(sys.argv[1], "key", "secret"))
def get():
    while True:
        objects.get("a", 4, 4)
for _ in range(4):
    threading.Thread(target=get, daemon=True).start()
assert objects.get("a", 4, 4) == b"4567"
"""


@pytest.mark.long
def test_a_process_may_end_while_it_gets() -> None:
    """obstore's coroutines would abort some of these processes (ADR 28)."""
    with faulty_s3(FOUR) as server:
        command = [sys.executable, "-c", GETTING, f"http://{server.host}/bucket"]
        ended = [subprocess.run(command, capture_output=True) for _ in range(5)]
    assert [(one.returncode, one.stderr) for one in ended] == 5 * [(0, b"")]


@pytest.mark.integration
def test_a_key_that_the_store_refuses_is_a_store_down(bucket: Settings) -> None:
    """As the store of the tests says it itself."""
    open_objects(bucket).put("a", b"x")
    for wrong, code in (
        ({"access_key": "nobody"}, "InvalidAccessKeyId"),
        ({"secret_key": SecretStr("wrong")}, "SignatureDoesNotMatch"),
        ({"access_key": "", "secret_key": SecretStr("")}, "AccessDenied"),
    ):
        objects = S3Objects(first_site(bucket.model_copy(update=wrong)))
        for length in (None, 1):
            with pytest.raises(StoreDown, match=f"answered {code} at a"):
                objects.get("a", 0, length)
