"""Signatures of ranged GETs: AWS Signature Version 4, as minio-py makes them but sooner.

See docs/adr/0044-cpu-of-one-cutout.md.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

import hmac
from datetime import datetime
from hashlib import sha256

_NO_BODY = sha256(b"").hexdigest()
_SIGNED = "host;range;x-amz-content-sha256;x-amz-date"


class RangeSigner:
    """Signs GETs of byte ranges with one key pair. The key of a day is made once."""

    def __init__(self, access_key: str, secret_key: str, region: str) -> None:
        self._access_key, self._secret_key, self._region = access_key, secret_key, region
        self._day, self._key = "", b""

    def headers(self, host: str, path: str, span: str, now: datetime) -> dict[str, str]:
        """The headers of a GET, without `Host`.

        Parameters
        ----------
        path
            Of the URL, with no character that needs an escape.
        span
            The value of the header `Range`.
        now
            In UTC.
        """
        moment = now.strftime("%Y%m%dT%H%M%SZ")
        day = moment[:8]
        if day != self._day:
            self._day, self._key = day, self._key_of(day)
        asked = (
            f"GET\n{path}\n\nhost:{host}\nrange:{span}\nx-amz-content-sha256:{_NO_BODY}\n"
            f"x-amz-date:{moment}\n\n{_SIGNED}\n{_NO_BODY}"
        )
        scope = f"{day}/{self._region}/s3/aws4_request"
        digest = sha256(asked.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}"
        signature = hmac.digest(self._key, text.encode(), "sha256").hex()
        return {
            "Range": span,
            "x-amz-content-sha256": _NO_BODY,
            "x-amz-date": moment,
            "Authorization": f"AWS4-HMAC-SHA256 Credential={self._access_key}/{scope}, "
            f"SignedHeaders={_SIGNED}, Signature={signature}",
        }

    def _key_of(self, day: str) -> bytes:
        key = f"AWS4{self._secret_key}".encode()
        for part in (day, self._region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return key
