"""How full a bucket is: the quotas of Ceph's RGW, and what counts against them.

RGW tells them in the header of its response to HEAD of a bucket. Releases from Squid on count only
if the query asks for it. No capability of its Admin Ops API is needed.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit
from xml.etree import ElementTree

from stampede.store.objects.address import StoreAddress
from stampede.store.s3.signed_requests import S3Requests

SCOPES = ("bucket", "user")
UNITS = ("size", "objects")


class Quota(NamedTuple):
    """A quota that is set.

    Attributes
    ----------
    scope
        ``bucket``, or ``user``: all buckets of the one that owns this bucket.
    unit
        ``size`` in bytes, or number of ``objects``.
    used
        What counts against it.
    limit
        From here on the store refuses to write.
    """

    scope: str
    unit: str
    used: int
    limit: int

    @property
    def left(self) -> int:
        """What may still be written; below zero if the limit was lowered."""
        return self.limit - self.used

    @property
    def ratio(self) -> float:
        """The part of it that is used."""
        return self.used / self.limit if self.limit else 1.0


class Usage(NamedTuple):
    """Bytes in a bucket, None if the store does not tell, and its quotas."""

    stored_bytes: int | None
    quotas: list[Quota]


def usage(site: StoreAddress) -> Usage:
    """What a bucket holds, and may hold. Raises `StoreDown`.

    A store that is no RGW tells nothing, nor does one to somebody without keys.
    """
    keys = site.access_key and site.secret_key
    if not site.url.startswith(("http://", "https://")) or not keys:
        return Usage(None, [])
    requests, bucket = S3Requests(site), urlsplit(site.url).path.strip("/")
    try:
        header = requests.send("HEAD", f"/{bucket}", {"read-stats": "true"}).headers
        return Usage(_number(header, "Bytes-Used"), [*_quotas(requests, bucket, header)])
    finally:
        requests.pool.clear()


def _quotas(requests: S3Requests, bucket: str, header: Mapping[str, str]) -> Iterator[Quota]:
    used = {"size": _number(header, "Bytes-Used"), "objects": _number(header, "Object-Count")}
    for scope in SCOPES:
        limits = {unit: _number(header, f"Quota-{scope}-{unit}") for unit in UNITS}
        limits = {unit: limit for unit, limit in limits.items() if limit is not None and limit >= 0}
        if scope == "user" and limits:
            used = _of_all_buckets(requests, bucket)
        for unit, limit in limits.items():
            if (number := used.get(unit)) is not None and limit is not None:
                yield Quota(scope, unit, number, limit)


def _of_all_buckets(requests: S3Requests, bucket: str) -> dict[str, int | None]:
    """What the keys' user stores; nothing if the bucket is another's."""
    response = requests.send("GET", "/", {"usage": ""})
    if response.status != 200:
        return {}
    document = ElementTree.fromstring(response.data)
    if bucket not in (each.text for each in document.iterfind(".//{*}Entry/{*}Bucket")):
        return {}
    total = {"size": "TotalBytes", "objects": "TotalEntries"}
    return {unit: int(document.findtext(f".//{{*}}{name}", "0")) for unit, name in total.items()}


def _number(header: Mapping[str, str], name: str) -> int | None:
    value = header.get(f"X-RGW-{name}")
    return None if value is None else int(value)
