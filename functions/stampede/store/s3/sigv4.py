"""Signatures of what reads: AWS Signature Version 4, as minio-py makes them but sooner.

See docs/adr/0044-cpu-of-one-cutout.md, 0050-starts.md and 0053-cold-caches.md.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

import hmac
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import sha256

from stampede.store.s3.credentials import KeyPair, S3Keys

_NO_BODY = sha256(b"").hexdigest()
_SIGNED = "host;x-amz-content-sha256;x-amz-date"
REUSE_SECONDS = 10
"""How long a signature of a GET is used again. S3 allows a clock to be wrong by 15 minutes."""
SIGNATURES = 256
"""Signatures of GETs that are kept, one of each object."""


class Signer:
    """Signs requests without a body, with a site's keys. Safe to share between threads."""

    def __init__(self, keys: S3Keys, region: str) -> None:
        self._keys, self._region = keys, region
        self._latest = "", "", b""  # the key of a day and a secret is made once
        self._signed = lru_cache(SIGNATURES)(self._sign)

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
            "Authorization": self._authorization(asked, moment),
        }

    def get_headers(self, host: str, path: str, seconds: float) -> dict[str, str]:
        """The headers of a GET of any range, without `Host` and `Range`; not a copy.

        `Range` need not be signed. So the GETs of an object within `REUSE_SECONDS` have the same
        signature, unless the keys change.

        Parameters
        ----------
        path
            Of the URL, with no character that needs an escape.
        seconds
            The time, in seconds since 1970.
        """
        return self._signed(host, path, int(seconds) // REUSE_SECONDS, self._keys.current)

    def _sign(self, host: str, path: str, period: int, _: KeyPair) -> dict[str, str]:
        now = datetime.fromtimestamp(period * REUSE_SECONDS, UTC)
        return self.headers("GET", host, path, "", now)

    def _authorization(self, asked: str, moment: str) -> str:
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
            f"SignedHeaders={_SIGNED}, Signature={signature}"
        )

    def _key_of(self, day: str, secret_key: str) -> bytes:
        key = f"AWS4{secret_key}".encode()
        for part in (day, self._region, "s3", "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return key


def _moment(now: datetime) -> str:
    return now.strftime("%Y%m%dT%H%M%SZ")
