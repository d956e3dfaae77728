"""Signed requests to an S3 endpoint for which minio-py has no method."""

import hashlib
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import urllib3
from minio import time
from minio.credentials import Credentials
from minio.signer import sign_v4_s3
from urllib3.exceptions import HTTPError

from stampede.errors import StoreDown
from stampede.store.objects.address import StoreAddress
from stampede.store.s3.credentials import S3Keys

CONNECT_SECONDS, READ_SECONDS = 3, 30


class S3Requests:
    """Signs requests with the keys of a site, and sends them to its endpoint."""

    def __init__(self, site: StoreAddress) -> None:
        self._url = urlsplit(site.url)._replace(path="/", query="", fragment="")
        self._region = site.region
        self.keys = S3Keys(site)
        self.pool = urllib3.PoolManager(
            ca_certs=str(site.ca_file) if site.ca_file else None,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
        )

    @property
    def endpoint(self) -> str:
        """The endpoint's URL."""
        return self._url.geturl()

    def send(
        self, method: str, path: str, query: dict[str, str], body: bytes = b""
    ) -> urllib3.BaseHTTPResponse:
        """Send a request; the answer, whatever its status. Raises `StoreDown` without an answer."""
        used = self.keys.current
        answer = self._send(method, path, query, body)
        if answer.status == 403 and self.keys.refused(used):
            answer = self._send(method, path, query, body)
        return answer

    def _send(
        self, method: str, path: str, query: dict[str, str], body: bytes
    ) -> urllib3.BaseHTTPResponse:
        url = self._url._replace(
            path=path, query=urlencode(query, quote_via=quote)
        )  # signed as %20, not +
        now, digest = time.utcnow(), hashlib.sha256(body).hexdigest()
        headers: dict[str, Any] = {
            "Host": url.netloc,
            "Content-Type": "application/x-www-form-urlencoded",
            "X-Amz-Date": time.to_amz_date(now),
            "X-Amz-Content-Sha256": digest,
        }
        sign_v4_s3(
            method=method,
            url=url,
            region=self._region,
            headers=headers,
            credentials=Credentials(*self.keys.current),
            content_sha256=digest,
            date=now,
        )
        try:
            answer = self.pool.request(method, url.geturl(), body=body, headers=headers)
        except (HTTPError, OSError) as error:
            raise StoreDown(f"{self.endpoint} does not answer: {error}") from None
        if answer.status >= 500:
            raise StoreDown(f"{self.endpoint} answered {answer.status}")
        return answer
