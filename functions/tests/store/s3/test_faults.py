"""What a user reads when an S3 endpoint refuses or does not answer."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from stampede.errors import StoreDown, StoreRefused
from stampede.store.objects.address import StoreAddress
from stampede.store.open import open_store
from stampede.store.s3 import bucket as s3
from stampede.store.s3.faults import ADVICE, answer_of
from stampede_local.tls import make_certificate
from tests.support.store.faulty_s3 import answer, error, faulty_s3, stalled

Request = Callable[[s3.S3Objects], object]
REQUESTS: dict[str, Request] = {
    "get": lambda objects: objects.get("packs/a"),
    "list": lambda objects: list(objects.list("packs/")),
}


def objects_at(url: str) -> s3.S3Objects:
    objects = open_store(StoreAddress(url, "key", "secret"))
    assert isinstance(objects, s3.S3Objects)
    return objects


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
@pytest.mark.parametrize("code", ADVICE)
def test_a_refusal_says_what_to_do_and_is_asked_once(request_: Request, code: str) -> None:
    refused = pytest.raises(StoreRefused, match=f"answered {code} at packs/")
    with faulty_s3(error("403 Forbidden", code)) as server, refused as caught:
        request_(objects_at(f"http://{server.host}/bucket"))
    assert caught.value.message.endswith(ADVICE[code])
    assert len(server.requests) == 1


def test_up_and_check_store_with_a_wrong_key_name_the_reason_that_a_listing_has() -> None:
    """The response to a HEAD has no body, so no code: `doctor`, which lists, had another reason."""
    with (
        faulty_s3(answer("403 Forbidden"), error("403 Forbidden", "InvalidAccessKeyId")) as server,
        pytest.raises(StoreRefused) as caught,
    ):
        objects_at(f"http://{server.host}/bucket").ensure_bucket()
    assert caught.value.message == (
        f"http://{server.host} answered InvalidAccessKeyId; {ADVICE['InvalidAccessKeyId']}"
    )
    assert len(server.requests) == 2


def test_a_failure_of_the_whole_bucket_names_no_key() -> None:
    with faulty_s3(answer("418 I'm a teapot")) as server, pytest.raises(StoreDown) as caught:
        list(objects_at(f"http://{server.host}/bucket").list(""))
    assert caught.value.message == f"http://{server.host} failed: it answered 418"


def test_another_error_is_no_refusal() -> None:
    slow = error("503 Slow Down", "SlowDown")
    with faulty_s3(slow) as server, pytest.raises(StoreDown) as caught:
        list(objects_at(f"http://{server.host}/bucket").list("packs/"))
    assert not isinstance(caught.value, StoreRefused)


def test_nobody_there_is_one_plain_line() -> None:
    with pytest.raises(StoreDown) as caught:
        list(objects_at("http://127.0.0.1:1/bucket").list("packs/"))
    assert caught.value.message == (
        "http://127.0.0.1:1 failed at packs/: cannot connect (Connection refused); "
        "is it running, and is the address right?"
    )


def test_silence_is_one_plain_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "READ_SECONDS", 0.2)
    monkeypatch.setattr(s3, "RETRY", s3.RETRY.new(total=0))
    with faulty_s3(stalled) as server, pytest.raises(StoreDown) as caught:
        list(objects_at(f"http://{server.host}/bucket").list("packs/"))
    assert caught.value.message == (
        f"http://{server.host} failed at packs/: Read timed out. (read timeout=0.2)"
    )


def test_a_certificate_of_an_unknown_authority_names_the_setting(tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make_certificate(certificate, key)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    with (
        faulty_s3(error("404 Not Found", "NoSuchKey"), context=context) as server,
        pytest.raises(StoreDown) as caught,
    ):
        list(objects_at(f"https://{server.host}/bucket").list("packs/"))
    message = caught.value.message
    assert "self-signed certificate" in message
    assert message.endswith("set STAMPEDE_CA_FILE to the authority of its certificate")
    assert "HTTPS" not in message


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (405, b"<?xml?>\n<Error><Code>MethodNotAllowed</Code></Error>", "405 MethodNotAllowed"),
        (403, b'{"Code":"AccessDenied","RequestId":"tx"}', "403 AccessDenied"),
        (502, b"<html>\n<h1>Bad  Gateway</h1>\xff", "502 <html> <h1>Bad Gateway</h1>\ufffd"),
        (404, b"", "404"),
    ],
)
def test_an_answer_is_one_line_with_the_code_of_s3(status: int, body: bytes, expected: str) -> None:
    assert answer_of(status, body) == expected
