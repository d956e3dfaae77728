"""minio-py's client, which writes objects. Import it late: it takes 100 ms."""

from typing import Any

from minio import Minio

_SHA256 = "x-amz-content-sha256"


class KnownDigests(Minio):
    """Uses the SHA-256 that it is given instead of computing it again (or, over TLS, an MD5)."""

    def _build_headers(
        self, host: Any, headers: Any = None, body: Any = None, creds: Any = None
    ) -> Any:
        if not (creds and body and headers and _SHA256 in headers):
            return super()._build_headers(host, headers, body, creds)
        given = {_SHA256: headers[_SHA256], "Content-Length": str(len(body))}
        built, date = super()._build_headers(host, headers, None, creds)
        return built | given, date
