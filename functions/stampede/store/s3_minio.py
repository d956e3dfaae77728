"""minio-py's client, which writes objects. Import it late: it takes 100 ms."""

from typing import Any
from urllib.parse import SplitResult

import urllib3
from minio import Minio
from minio.credentials import Credentials, Provider
from minio.error import S3Error

from stampede.store.s3_keys import S3Keys

_SHA256 = "x-amz-content-sha256"


class S3Client(Minio):
    """Uses a SHA-256 that it is given, not one more or an MD5, and new keys once old are refused.

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

    def _url_open(self, *arguments: Any, **more: Any) -> Any:
        used = self._keys.current
        try:
            return super()._url_open(*arguments, **more)
        except S3Error as error:
            if error.response.status != 403 or not self._keys.refused(used):
                raise
        return super()._url_open(*arguments, **more)

    def _build_headers(
        self, host: Any, headers: Any = None, body: Any = None, creds: Any = None
    ) -> Any:
        headers = dict(headers or {})  # minio-py changes them, and a second try needs them again
        if not (creds and body and _SHA256 in headers):
            return super()._build_headers(host, headers, body, creds)
        given = {_SHA256: headers[_SHA256], "Content-Length": str(len(body))}
        built, date = super()._build_headers(host, headers, None, creds)
        return built | given, date


class _Provider(Provider):
    """The keys of each request."""

    def __init__(self, keys: S3Keys) -> None:
        self._keys = keys

    def retrieve(self) -> Credentials:
        return Credentials(*self._keys.current)
