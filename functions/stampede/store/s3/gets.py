"""GETs from an S3 bucket through obstore, at a quarter of the CPU time that minio-py takes."""

import os
import re
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from obstore import get as get_object
from obstore.exceptions import BaseError
from obstore.store import S3Store

from stampede.errors import NotFound, StoreDown
from stampede.store.objects.address import StoreAddress
from stampede.store.s3.credentials import S3Keys
from stampede.store.s3.faults import refusal

if TYPE_CHECKING:
    from obstore import GetOptions
    from obstore.store import ClientConfig, S3Credential

ABSENT = ("NoSuchKey", "NoSuchObject", "ResourceNotFound")
"""Error codes of S3 for an object that is not there; a missing bucket is another matter."""
_CODE = re.compile(r"<Code>(\w+)</Code>")
_CAUSE = re.compile(r'message: "([^"]+)"|InvalidCertificate\(\s*(\w+)|(TimedOut)')
# obstore's limit on a whole request is 30 s by default, too little for a pack from a distant site.
_LONGEST = timedelta(hours=1)
_PIECE = 1 << 20
_SIGNAL_SECONDS = 0.2  # until a signal is noticed at the latest
# Files and directories of public authorities, for rustls as for OpenSSL.
_AUTHORITIES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_environment = threading.Lock()
_EXPIRED = datetime(2000, 1, 1, tzinfo=UTC)


class Unable(Exception):
    """obstore refuses a response that minio-py takes."""


class SelfSigned(Unable):
    """The store's certificate is that of an authority, which OpenSSL may trust and rustls never."""


class Patience(NamedTuple):
    """How long to wait for a store.

    `connect_seconds` is how long a connection may take, `read_seconds` how long the store may send
    nothing. After a failed connection, a timeout or a 5xx there are `retries` further tries, the
    first one after `first_wait` seconds.
    """

    connect_seconds: float
    read_seconds: float
    retries: int
    first_wait: float


class S3Gets:
    """Ranges of the objects in one bucket. Safe to share between threads.

    obstore also refuses what minio-py returns: another range than the one that was asked for.
    A forked child must not use it, as obstore's threads stay with the parent; Stampede only spawns.

    Parameters
    ----------
    endpoint
        ``http(s)://HOST:PORT``.
    patience
        When to give up.

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
        keys: S3Keys,
        patience: Patience,
    ) -> None:
        self._endpoint, self._keys = endpoint, keys
        client: ClientConfig = {
            "allow_http": True,
            "connect_timeout": timedelta(seconds=patience.connect_seconds),
            "read_timeout": timedelta(seconds=patience.read_seconds),
            "timeout": _LONGEST,
        }
        try:
            if address.ca_file:
                client["root_certificate"] = address.ca_file.read_bytes()
            with _settings_alone(address.ca_file):
                self._store = S3Store(
                    bucket,
                    endpoint=endpoint,
                    region=address.region,
                    virtual_hosted_style_request=False,
                    skip_signature=not address.access_key,
                    **self._credentials(address),
                    client_options=client,
                    retry_config={
                        "max_retries": patience.retries,
                        "backoff": {"init_backoff": timedelta(seconds=patience.first_wait)},
                        "retry_timeout": _LONGEST,
                    },
                )
        except (BaseError, OSError) as error:
            raise ValueError(_reason(error)) from None

    def _credentials(self, address: StoreAddress) -> dict[str, Any]:
        """How obstore gets the keys."""
        if not address.keys:
            return {
                "access_key_id": address.access_key,
                "secret_access_key": address.secret_key,
            }

        def provide() -> "S3Credential":
            access, secret = self._keys.current
            # obstore keeps what has not expired, and would not notice that it was refused.
            return {"access_key_id": access, "secret_access_key": secret, "expires_at": _EXPIRED}

        return {"credential_provider": provide}

    def get(self, key: str, start: int, length: int | None) -> bytes:
        """See `Objects.get`; `length` is not 0, and `key` is `plain`. Raises `Unable` too."""

        def get() -> bytes:
            return self._keys.retry_refused(lambda: self._get(key, start, length))

        # obstore's calls look for no signal until they return, so the main thread, where Python
        # handles signals, waits for another thread instead.
        if threading.current_thread() is threading.main_thread():
            return _in_a_thread(get)
        return get()

    def _get(self, key: str, start: int, length: int | None) -> bytes:
        options: GetOptions = {}
        if length is not None:
            options["range"] = (start, start + length)
        elif start:
            options["range"] = {"offset": start}
        try:
            got = get_object(self._store, key, options=options)
            first, stop = got.range
            if stop - first <= _PIECE:
                data = bytes(got.bytes())
            else:  # `bytes()` would hold it twice
                body = BytesIO()
                for piece in got.stream(_PIECE):
                    body.write(piece)
                data = body.getvalue()
        except (BaseError, OSError, ValueError) as error:
            # obstore takes any 404 for a missing object, also that of a missing bucket or of a
            # server in between. S3 tells them apart by the code in its response.
            code = _CODE.search(str(error))
            if code is None and "CaUsedAsEndEntity" in str(error):
                raise SelfSigned from None
            if code is None and "Content-Length Header missing" in str(error):
                raise Unable from None
            if code is None:
                raise StoreDown(f"{self._endpoint} failed at {key}: {_reason(error)}") from error
            if code[1] in ABSENT:
                raise NotFound(f"the store has no object {key}") from None
            if code[1] == "InvalidRange":  # it begins at the object's end or beyond it
                return b""
            raise refusal(self._endpoint, code[1], key) from error
        if len(data) != stop - first:
            raise StoreDown(
                f"{self._endpoint} failed at {key}: "
                f"it sent {len(data)} bytes and announced {stop - first}"
            )
        return data


def plain(key: str) -> bool:
    """Whether obstore asks for just this key: it drops slashes at the ends, and refuses others."""
    return key.isprintable() and not any(part in ("", ".", "..") for part in key.split("/"))


def _in_a_thread(get: Callable[[], bytes]) -> bytes:
    """Wait for `get` so that a signal may end the wait; at its end the process does not wait."""
    future: Future[bytes] = Future()

    def run() -> None:
        try:
            future.set_result(get())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, name="get", daemon=True).start()
    # A signal that another thread gets does not end the main thread's wait.
    while not future.done():
        wait([future], timeout=_SIGNAL_SECONDS)
    return future.result()


def _reason(error: Exception) -> str:
    """What went wrong, in one line: the end of obstore's sentence, and the cause below it."""
    text, _, details = str(error).partition("\n\nDebug source")
    reason, cause = text.rpartition(" - ")[2], _CAUSE.search(details)
    return f"{reason}: {cause[cause.lastindex or 0]}" if cause else reason


@contextmanager
def _settings_alone(ca_file: Path | None) -> Iterator[None]:
    """Hide variables of the environment that obstore would obey besides Stampede's own settings.

    A session token among them would spoil the keys, and an endpoint of S3 would replace the
    store's. With a `ca_file` obstore would trust the public authorities too, so for that time it
    stands in their place.

    Other threads see this environment too: processes make their clients before they start threads.
    """
    with _environment:
        hidden = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("AWS_")
            or name.lower().endswith("_proxy")
            or (ca_file and name in _AUTHORITIES)
        }
        for name in hidden:
            del os.environ[name]
        if ca_file:
            os.environ["SSL_CERT_FILE"] = str(ca_file)
        try:
            yield
        finally:
            if ca_file:
                del os.environ["SSL_CERT_FILE"]
            os.environ.update(hidden)
