"""Signatures of what reads: AWS Signature Version 4, as minio-py makes them but sooner.

See docs/adr/0044-cpu-of-one-cutout.md and docs/adr/0050-starts.md.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

import hmac
from datetime import datetime
from hashlib import sha256

from stampede.store.s3_keys import S3Keys

_NO_BODY = sha256(b"").hexdigest()
_SIGNED = "host;x-amz-content-sha256;x-amz-date"
_RANGE_SIGNED = "host;range;x-amz-content-sha256;x-amz-date"


class Signer:
    """Signs requests without a body, with a site's keys. Safe to share between threads."""

    def __init__(self, keys: S3Keys, region: str) -> None:
        self._keys, self._region = keys, region
        self._latest = "", "", b""  # the key of a day and a secret is made once

    def headers(
        self, method: str, host: str, path: str, query: str, now: datetime
    ) -> dict[str, str]:
        """The headers of a request, without `Host`.

        Parameters
        ----------
        path, query
            Of the URL, escaped; the parameters of the query in the order of their names.
        now
            In UTC.
        """
        moment = _moment(now)
        asked = (
            f"{method}\n{path}\n{query}\nhost:{host}\nx-amz-content-sha256:{_NO_BODY}\n"
            f"x-amz-date:{moment}\n\n{_SIGNED}\n{_NO_BODY}"
        )
        return {
            "x-amz-content-sha256": _NO_BODY,
            "x-amz-date": moment,
            "Authorization": self._authorization(asked, _SIGNED, moment),
        }

    def range_headers(self, host: str, path: str, span: str, now: datetime) -> dict[str, str]:
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
        moment = _moment(now)
        asked = (
            f"GET\n{path}\n\nhost:{host}\nrange:{span}\nx-amz-content-sha256:{_NO_BODY}\n"
            f"x-amz-date:{moment}\n\n{_RANGE_SIGNED}\n{_NO_BODY}"
        )
        return {
            "Range": span,
            "x-amz-content-sha256": _NO_BODY,
            "x-amz-date": moment,
            "Authorization": self._authorization(asked, _RANGE_SIGNED, moment),
        }

    def _authorization(self, asked: str, signed: str, moment: str) -> str:
        day = moment[:8]
        access_key, secret_key = self._keys.current
        key_day, key_secret, key = self._latest
        if day != key_day or secret_key != key_secret:
            key = self._key_of(day, secret_key)
            self._latest = day, secret_key, key
        scope = f"{day}/{self._region}/s3/aws4_request"
        digest = sha256(asked.encode()).hexdigest()
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}"
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        return (
            f"AWS4-HMAC-SHA256 Credential={access_key}/{scope}, "
            f"SignedHeaders={signed}, Signature={signature}"
        )

    def _key_of(self, day: str, secret_key: str) -> bytes:
        key = f"AWS4{secret_key}".encode()
        for part in (day, self._region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return key


def _moment(now: datetime) -> str:
    return now.strftime("%Y%m%dT%H%M%SZ")
