"""GETs from an S3 bucket through obstore, at a quarter of the CPU time that minio-py takes."""

import os
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from obstore import get as get_object
from obstore import get_range
from obstore.exceptions import BaseError
from obstore.store import S3Store

from stampede.errors import NotFound, StoreDown
from stampede.store.address import StoreAddress

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig

ABSENT = ("NoSuchKey", "NoSuchObject", "ResourceNotFound")
"""Error codes of S3 for an object that is not there; a missing bucket is another matter."""
_CODE = re.compile(r"<Code>(\w+)</Code>")
_CAUSE = re.compile(r'message: "([^"]+)"|InvalidCertificate\(\s*(\w+)|(TimedOut)')
# obstore's limit on a whole request is 30 s by default, too little for a pack from a distant site.
_LONGEST = timedelta(hours=1)
_environment = threading.Lock()


class SelfSigned(Exception):
    """The store's certificate is that of an authority, which OpenSSL may trust and rustls never."""


class S3Gets:
    """Ranges of the objects in one bucket. Safe to share between threads.

    obstore also refuses what minio-py returns: another range than the one that was asked for.

    Parameters
    ----------
    endpoint
        ``http(s)://HOST:PORT``.
    connect_seconds, read_seconds
        How long a connection may take, and how long the store may send nothing.
    retries, first_wait
        Further tries after a failed connection, a timeout or a 5xx; seconds before the first.

    Raises
    ------
    ValueError
        The certificate authority's file cannot be read, or the region or the keys are malformed.
    """

    def __init__(
        self,
        endpoint: str,
        bucket: str,
        address: StoreAddress,
        connect_seconds: float,
        read_seconds: float,
        retries: int,
        first_wait: float,
    ) -> None:
        self._endpoint = endpoint
        client: ClientConfig = {
            "allow_http": True,
            "connect_timeout": timedelta(seconds=connect_seconds),
            "read_timeout": timedelta(seconds=read_seconds),
            "timeout": _LONGEST,
        }
        try:
            if address.ca_file:
                client["root_certificate"] = address.ca_file.read_bytes()
            with _settings_alone():
                self._store = S3Store(
                    bucket,
                    endpoint=endpoint,
                    region=address.region,
                    virtual_hosted_style_request=False,
                    skip_signature=not address.access_key,
                    access_key_id=address.access_key,
                    secret_access_key=address.secret_key,
                    client_options=client,
                    retry_config={
                        "max_retries": retries,
                        "backoff": {"init_backoff": timedelta(seconds=first_wait)},
                        "retry_timeout": _LONGEST,
                    },
                )
        except (BaseError, OSError) as error:
            raise ValueError(_reason(error)) from None

    def get(self, key: str, start: int, length: int | None) -> bytes:
        """See `Objects.get`; `length` is not 0, and `key` is `plain`. Raises `SelfSigned` too."""
        try:
            if length is not None:
                return bytes(get_range(self._store, key, start=start, length=length))
            options: GetOptions = {"range": {"offset": start}} if start else {}
            return bytes(get_object(self._store, key, options=options).bytes())
        except (BaseError, OSError, ValueError) as error:
            # obstore takes any 404 for a missing object, also that of a missing bucket or of a
            # server in between. S3 tells them apart by the code in its answer.
            code = _CODE.search(str(error))
            if code is None and "CaUsedAsEndEntity" in str(error):
                raise SelfSigned from None
            if code is None:
                raise StoreDown(f"{self._endpoint} failed at {key}: {_reason(error)}") from error
            if code[1] in ABSENT:
                raise NotFound(f"the store has no object {key}") from None
            if code[1] == "InvalidRange":  # it begins at the object's end or beyond it
                return b""
            raise StoreDown(f"{self._endpoint} answered {code[1]} at {key}") from error


def plain(key: str) -> bool:
    """Whether obstore asks for just this key: it drops slashes at the ends, and refuses others."""
    return not any(part in ("", ".", "..") for part in key.split("/"))


def _reason(error: Exception) -> str:
    """What went wrong, in one line: the end of obstore's sentence, and the cause below it."""
    text, _, details = str(error).partition("\n\nDebug source")
    reason, cause = text.rpartition(" - ")[2], _CAUSE.search(details)
    return f"{reason}: {cause[cause.lastindex or 0]}" if cause else reason


@contextmanager
def _settings_alone() -> Iterator[None]:
    """Hide variables of the environment that obstore would obey besides Stampede's own settings.

    A session token among them would spoil the keys, and an endpoint of S3 would replace the
    store's.
    """
    with _environment:
        hidden = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("AWS_") or name.lower().endswith("_proxy")
        }
        for name in hidden:
            del os.environ[name]
        try:
            yield
        finally:
            os.environ.update(hidden)
