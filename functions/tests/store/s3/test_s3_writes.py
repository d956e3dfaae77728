"""An endpoint that responses a write with 200 and an error document has stored nothing."""

from collections.abc import Callable

import pytest

from stampede.errors import StoreDown
from stampede.store.objects.address import StoreAddress
from stampede.store.s3.bucket import S3Objects
from tests.support.store.faulty_s3 import Answer, answer, error, faulty_s3

FAILED = error("200 OK", "InternalError")
XML = "Content-Type: application/xml"
BEGUN = answer(
    "200 OK",
    b"<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>",
    XML,
)
PART = answer("200 OK", b"", 'ETag: "e"')
ABORTED = answer("204 No Content")


def put(objects: S3Objects) -> None:
    objects.put("a", b"data")


def put_stream(objects: S3Objects) -> None:
    objects.put_stream("a", [b"data"])


def delete(objects: S3Objects) -> None:
    objects.delete("a")


@pytest.mark.parametrize(
    ("write", "responses"),
    [
        (put, [FAILED]),
        (put, [answer("200 OK")]),  # no ETag
        (put, [answer("200 OK", b"<html>sign in first</html>", 'ETag: "e"')]),
        (put_stream, [FAILED, ABORTED]),
        (put_stream, [answer("200 OK", b"<html>"), ABORTED]),
        (put_stream, [BEGUN, FAILED, ABORTED]),
        (put_stream, [BEGUN, PART, FAILED, ABORTED]),
        (put_stream, [BEGUN, PART, answer("200 OK", b"", XML), ABORTED]),
        (put_stream, [BEGUN, PART, answer("200 OK", b"<Complete", XML), ABORTED]),
        (delete, [FAILED]),
    ],
)
def test_an_error_with_status_200(
    write: Callable[[S3Objects], None], responses: list[Answer]
) -> None:
    with faulty_s3(*responses) as server:
        objects = S3Objects(StoreAddress(f"http://{server.host}/bucket", "key", "secret"))
        with pytest.raises(StoreDown, match="at a") as caught:
            write(objects)
    assert "\n" not in caught.value.message
