"""minio-py's client, which writes objects. Import it late: it takes 100 ms."""

from typing import Any
from urllib.parse import SplitResult
from xml.etree import ElementTree

import urllib3
from minio import Minio
from minio.credentials import Credentials, Provider
from minio.error import MinioException, S3Error

from stampede.store.s3.credentials import S3Keys

_SHA256 = "x-amz-content-sha256"


class WrongAnswer(MinioException):
    """An answer that S3 does not give to such a request."""


class S3Client(Minio):
    """Uses a SHA-256 that it is given, not one more or an MD5, and new keys once old are refused.

    An answer 200 to a write is a success only if it has what S3 sends with it.

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

    def _url_open(self, method: str, *arguments: Any, **more: Any) -> Any:
        used = self._keys.current
        try:
            return self._send(method, *arguments, **more)
        except S3Error as error:
            if error.response.status != 403 or not self._keys.refused(used):
                raise
        return self._send(method, *arguments, **more)

    def _send(self, method: str, *arguments: Any, **more: Any) -> Any:
        try:
            answer = super()._url_open(method, *arguments, **more)
            if more.get("object_name") and method in ("PUT", "POST", "DELETE"):
                _check_success(method, answer)
            return answer
        except (ElementTree.ParseError, ValueError) as error:
            raise WrongAnswer(f"its answer cannot be read: {error}") from None

    def _build_headers(
        self, host: Any, headers: Any = None, body: Any = None, creds: Any = None
    ) -> Any:
        headers = dict(headers or {})  # minio-py changes them, and a second try needs them again
        if not (creds and body and _SHA256 in headers):
            return super()._build_headers(host, headers, body, creds)
        given = {_SHA256: headers[_SHA256], "Content-Length": str(len(body))}
        built, date = super()._build_headers(host, headers, None, creds)
        return built | given, date


def _check_success(method: str, answer: urllib3.BaseHTTPResponse) -> None:
    """Raise `S3Error` or `WrongAnswer` for a failure with status 200.

    S3 documents such failures for requests that take long, whose header is sent before the end:
    https://docs.aws.amazon.com/AmazonS3/latest/API/API_CompleteMultipartUpload.html
    """
    if answer.data:
        root = ElementTree.fromstring(answer.data).tag.rpartition("}")[2]
        if root == "Error":
            raise S3Error.fromxml(answer)
        if method != "POST" or not root.endswith("Result"):
            raise WrongAnswer(f"its answer is no success, but {root}")
    elif method == "POST":
        raise WrongAnswer("its answer is empty")
    if method == "PUT" and not answer.headers.get("ETag"):
        raise WrongAnswer("its answer has no ETag")


class _Provider(Provider):
    """The keys of each request."""

    def __init__(self, keys: S3Keys) -> None:
        self._keys = keys

    def retrieve(self) -> Credentials:
        return Credentials(*self._keys.current)
