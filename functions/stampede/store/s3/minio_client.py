"""minio-py's client, which writes objects. Import it late: it takes 100 ms.

What minio-py does not offer in public is called here alone: requests for bytes and parts in memory.
Its public methods read a file, and so would copy or hold the bytes once more.
"""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from typing import Any, cast
from urllib.parse import SplitResult, unquote
from xml.etree import ElementTree

import urllib3
from minio import Minio, time
from minio.credentials import Credentials, Provider
from minio.datatypes import Part
from minio.error import MinioException, S3Error
from minio.signer import sign_v4_s3
from urllib3.exceptions import HTTPError

from stampede.store.s3.credentials import KeyPair, S3Keys

__all__ = ["MinioException", "S3Client", "S3Error", "WrongResponse", "signed_headers"]

_SHA256 = "x-amz-content-sha256"


class WrongResponse(MinioException):
    """A response that S3 does not give to such a request."""


class S3Client(Minio):
    """Uses a SHA-256 that it is given, not one more or an MD5, and new keys once old are refused.

    A response 200 to a write is a success only if it has what S3 sends with it.

    Raises `ValueError` if the endpoint is malformed.
    """

    def __init__(
        self, url: SplitResult, region: str, keys: S3Keys, pool: urllib3.PoolManager
    ) -> None:
        super().__init__(
            url.netloc,
            credentials=_Provider(keys) if keys.current.access_key else None,
            region=region,  # otherwise minio-py spends a request on it
            secure=url.scheme == "https",
            http_client=pool,
        )
        self._keys = keys

    def put_bytes(
        self, bucket: str, key: str, data: bytes | memoryview, headers: dict[str, str]
    ) -> None:
        """Put an object in one request. Raises `MinioException`."""
        self._put_object(bucket, key, cast(bytes, data), cast(Any, headers))

    def put_parts(self, bucket: str, key: str, pieces: Iterable[bytes]) -> None:
        """Put an object as an upload in parts, one request each. Raises `MinioException`."""
        upload = self._create_multipart_upload(bucket, key, {})
        try:
            parts = [
                Part(number, self._upload_part(bucket, key, piece, None, upload, number))
                for number, piece in enumerate(pieces, 1)
            ]
            self._complete_multipart_upload(bucket, key, upload, parts)
        except BaseException:
            # If this fails too, `forget_uploads` deletes the upload later.
            with suppress(MinioException, HTTPError, OSError):
                self._abort_multipart_upload(bucket, key, upload)
            raise

    def forget_uploads(self, bucket: str, before: datetime) -> int:
        """Delete those of the first thousand uploads that began before a time; how many.

        Raises `MinioException`.
        """
        old = [
            upload
            for upload in self._list_multipart_uploads(bucket).uploads
            if upload.initiated_time and upload.initiated_time < before
        ]
        for upload in old:
            # Ceph encodes the key without declaring it. No key here contains a %.
            key, upload_id = unquote(upload.object_name), cast(str, upload.upload_id)
            self._abort_multipart_upload(bucket, key, upload_id)
        return len(old)

    def setting(self, bucket: str, name: str) -> ElementTree.Element:
        """A setting of a bucket, such as ``versioning``, as its document. Raises `S3Error`."""
        return ElementTree.fromstring(self._execute("GET", bucket, query_params={name: ""}).data)

    def _url_open(self, method: str, *arguments: Any, **more: Any) -> Any:
        return self._keys.retry_refused(
            lambda: self._send(method, *arguments, **more),
            lambda error: isinstance(error, S3Error) and error.response.status == 403,
        )

    def _send(self, method: str, *arguments: Any, **more: Any) -> Any:
        try:
            response = super()._url_open(method, *arguments, **more)
            if more.get("object_name") and method in ("PUT", "POST", "DELETE"):
                _check_success(method, response)
            return response
        except (ElementTree.ParseError, ValueError) as error:
            raise WrongResponse(f"its answer cannot be read: {error}") from None

    def _build_headers(
        self, host: Any, headers: Any = None, body: Any = None, creds: Any = None
    ) -> Any:
        headers = dict(headers or {})  # minio-py changes them, and a second try needs them again
        if not (creds and body and _SHA256 in headers):
            return super()._build_headers(host, headers, body, creds)
        given = {_SHA256: headers[_SHA256], "Content-Length": str(len(body))}
        built, date = super()._build_headers(host, headers, None, creds)
        return built | given, date


def signed_headers(
    method: str, url: SplitResult, region: str, keys: KeyPair, body: bytes
) -> dict[str, Any]:
    """The headers of a request of a form, signed as AWS Signature Version 4 asks."""
    now, digest = time.utcnow(), sha256(body).hexdigest()
    headers: dict[str, Any] = {
        "Host": url.netloc,
        "Content-Type": "application/x-www-form-urlencoded",
        "X-Amz-Date": time.to_amz_date(now),
        "X-Amz-Content-Sha256": digest,
    }
    sign_v4_s3(
        method=method,
        url=url,
        region=region,
        headers=headers,
        credentials=Credentials(*keys),
        content_sha256=digest,
        date=now,
    )
    return headers


def _check_success(method: str, response: urllib3.BaseHTTPResponse) -> None:
    """Raise `S3Error` or `WrongResponse` for a failure with status 200.

    S3 documents such failures for requests that take long, whose header is sent before the end:
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
    """
    if response.data:
        root = ElementTree.fromstring(response.data).tag.rpartition("}")[2]
        if root == "Error":
            raise S3Error.fromxml(response)
        if method != "POST" or not root.endswith("Result"):
            raise WrongResponse(f"its answer is no success, but {root}")
    elif method == "POST":
        raise WrongResponse("its answer is empty")
    if method == "PUT" and not response.headers.get("ETag"):
        raise WrongResponse("its answer has no ETag")


class _Provider(Provider):
    """The keys of each request."""

    def __init__(self, keys: S3Keys) -> None:
        self._keys = keys

    def retrieve(self) -> Credentials:
        return Credentials(*self._keys.current)
