"""Signed requests to an S3 endpoint for which minio-py has no method."""

from urllib.parse import quote, urlencode, urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from stampede.errors import StoreDown
from stampede.store.objects.address import StoreAddress
from stampede.store.s3.credentials import S3Keys
from stampede.store.s3.minio_client import signed_headers

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
        """Send a request; return any response. Raises `StoreDown` without one."""
        used = self.keys.current
        response = self._send(method, path, query, body)
        if response.status == 403 and self.keys.refused(used):
            response = self._send(method, path, query, body)
        return response

    def _send(
        self, method: str, path: str, query: dict[str, str], body: bytes
    ) -> urllib3.BaseHTTPResponse:
        url = self._url._replace(
            path=path, query=urlencode(query, quote_via=quote)
        )  # signed as %20, not +
        headers = signed_headers(method, url, self._region, self.keys.current, body)
        try:
            response = self.pool.request(method, url.geturl(), body=body, headers=headers)
        except (HTTPError, OSError) as error:
            raise StoreDown(f"{self.endpoint} does not answer: {error}") from None
        if response.status >= 500:
            raise StoreDown(f"{self.endpoint} answered {response.status}")
        return response
