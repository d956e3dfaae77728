"""What the address of an S3 bucket must be like: as minio-py asks, without importing it."""

import re
from urllib.parse import SplitResult, urlsplit

from stampede.store.objects.address import StoreAddress

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{1,61}[A-Za-z0-9]")
_NUMBER = r"(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
_IPV4 = re.compile(rf"({_NUMBER}\.){{3}}{_NUMBER}")
_REGION = re.compile(r"(?![_-])[A-Za-z0-9_-]{1,63}(?<![_-])")
_DEFAULT_PORTS = {"http": 80, "https": 443}


def checked_url(address: StoreAddress) -> SplitResult:
    """The URL of a bucket whose address has nothing that minio-py would refuse later.

    Raises
    ------
    ValueError
        The bucket's name, the URL, the keys or the region are malformed.
    """
    url = urlsplit(address.url)
    _check_bucket(url.path.strip("/"))
    _check_headers(address)
    try:
        _ = url.port
    except ValueError:
        raise ValueError("invalid port") from None
    for name in ("username", "password", "query", "fragment"):
        if getattr(url, name):
            raise ValueError(f"{name} in endpoint is not allowed")
    if address.region and not _REGION.fullmatch(address.region):
        raise ValueError(f"invalid region {address.region}")
    if address.access_key and not address.secret_key:
        raise ValueError("secret key must be provided with access key")
    return url


def host_of(url: SplitResult) -> str:
    """The header `Host` of a request, without the port that the scheme implies."""
    if url.port == _DEFAULT_PORTS.get(url.scheme):
        return url.netloc.rpartition(":")[0]
    return url.netloc


def _check_bucket(name: str) -> None:
    if not _BUCKET.fullmatch(name):
        raise ValueError(f"invalid bucket name {name}")
    if _IPV4.fullmatch(name):
        raise ValueError(f"bucket name {name} must not be formatted as an IP address")
    if any(pair in name for pair in ("..", ".-", "-.")):
        raise ValueError(f"bucket name {name} contains invalid successive characters")
    if name.endswith(("-s3alias", "--ol-s3")):
        raise ValueError(f"bucket name {name} must not end with '-s3alias' or '--ol-s3'")


def _check_headers(address: StoreAddress) -> None:
    """Raise ValueError, without the value, if a setting does not fit into a request's header."""
    for name in ("access_key", "secret_key", "region"):
        for position, char in enumerate(getattr(address, name)):
            if not (char.isascii() and char.isprintable()):
                raise ValueError(
                    f"{name} has a character at position {position} that is not printable ASCII"
                )
