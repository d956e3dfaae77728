"""Objects in a bucket of an S3 endpoint, Ceph's RGW above all.

obstore gets them, `S3Lists` lists them, and minio-py does all else. It is imported by the first
request that needs it: `read` starts without it (docs/adr/0050-starts.md).
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cached_property
from typing import TYPE_CHECKING

import urllib3
from urllib3.exceptions import HTTPError

from stampede.errors import NotFound, SetupError
from stampede.store.objects.address import StoreAddress
from stampede.store.objects.object_store import Folder, ObjectInfo
from stampede.store.s3.async_gets import S3AsyncGets
from stampede.store.s3.credentials import S3Keys
from stampede.store.s3.faults import failure, refusal
from stampede.store.s3.gets import ABSENT, Patience, S3Gets, SelfSigned, Unable, plain
from stampede.store.s3.listings import S3Lists
from stampede.store.s3.silent_nights import SilentNights
from stampede.store.s3.url import checked_url
from stampede.telemetry import tracing

if TYPE_CHECKING:
    from stampede.store.s3.bucket_settings import BucketSettings
    from stampede.store.s3.minio_client import S3Client

# More than any process has threads. A connection beyond this number is closed after its request.
CONNECTIONS = 64
# Every write here may be repeated, so a PUT is retried like a GET. After three tries the function
# answers 503, and the sender of the event retries later and for longer.
RETRIES, FIRST_WAIT = 2, 0.1
RETRY = urllib3.Retry(
    RETRIES,
    backoff_factor=FIRST_WAIT,
    status_forcelist=(500, 502, 503, 504),
    allowed_methods=None,
)
CONNECT_SECONDS, READ_SECONDS = 3.0, 30.0
# A GET of `async_gets` that is silent for so long is left to `get`, which tries it three times.
FIRST_READ_SECONDS = 5.0


class S3Objects:
    """`Objects` in one bucket.

    Parameters
    ----------
    address
        Its `url` is ``http(s)://HOST:PORT/BUCKET``.
    connections
        Idle connections kept open.

    Raises
    ------
    ValueError
        The bucket's name, the URL, the keys or the region are malformed.
    """

    def __init__(self, address: StoreAddress, connections: int = CONNECTIONS) -> None:
        url = checked_url(address)
        self.bucket = url.path.strip("/")
        self.endpoint = f"{url.scheme}://{url.netloc}"
        self._pool = urllib3.PoolManager(
            maxsize=connections,
            retries=RETRY,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
            ca_certs=str(address.ca_file) if address.ca_file else None,
        )
        self._url = url
        self._address, self._keys = address, S3Keys(address)
        self._lists = S3Lists(url, self._keys, address.region, self._pool)
        self._self_signed = False
        self._silent: SilentNights | None = None  # only where readers wait for each other
        self._gets = S3Gets(
            self.endpoint,
            self.bucket,
            address,
            self._keys,
            Patience(CONNECT_SECONDS, READ_SECONDS, RETRIES, FIRST_WAIT),
        )

    @cached_property
    def _minio(self) -> "S3Client":
        """minio-py's client. Raises `SetupError` for an address that it refuses."""
        from stampede.store.s3.minio_client import S3Client

        try:
            return S3Client(self._url, self._address.region, self._keys, self._pool)
        except ValueError as error:
            raise SetupError(f"the store at {self.endpoint} cannot be used: {error}") from None

    def ensure_bucket(self) -> None:
        """Create the bucket if it does not exist."""
        from stampede.store.s3.minio_client import S3Error

        with self._errors(self.bucket):
            if not _exists(self, self._minio):
                try:
                    self._minio.make_bucket(self.bucket)
                except S3Error as error:
                    if error.code != "BucketAlreadyOwnedByYou":  # another process was faster
                        raise

    def put(self, key: str, data: bytes | memoryview, sha256: str | None = None) -> None:
        """See `Objects.put`; one PUT for any size (S3 takes up to 5 GB)."""
        with self._errors(key):
            headers = {"Content-Type": "application/octet-stream"}
            if sha256:
                headers["x-amz-content-sha256"] = sha256
            if trace := tracing.current():  # the notification of the object repeats it
                headers[tracing.METADATA] = trace
            self._minio.put_bytes(self.bucket, key, data, headers)

    def put_stream(self, key: str, pieces: Iterable[bytes]) -> None:
        """See `Objects.put_stream`; an upload in parts, one request each."""
        with self._errors(key):
            self._minio.put_parts(self.bucket, key, pieces)

    def get(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        """See `Objects.get`."""
        if length == 0:
            self.head(key)
            return b""
        with self._silent.asking(key) if self._silent else nullcontext():
            if plain(key) and not self._self_signed:
                try:
                    return self._gets.get(key, start, length)
                except Unable as unable:
                    self._self_signed |= isinstance(unable, SelfSigned)
            return self._get_by_minio(key, start, length)

    def async_gets(self) -> S3AsyncGets:
        """GETs for an event loop, which needs no thread for them.

        From now on `get` fails at once for nights that are silent: see `SilentNights`.
        """
        self._silent = self._silent or SilentNights()
        return S3AsyncGets(
            self.endpoint,
            self.bucket,
            self._address,
            self._keys,
            CONNECT_SECONDS,
            FIRST_READ_SECONDS,
            self._silent,
        )

    def head(self, key: str) -> ObjectInfo:
        """See `Objects.head`."""
        return self._lists.head(key)

    def list(self, prefix: str, after: str = "") -> Iterator[ObjectInfo]:
        """See `Objects.list`; a thousand keys per request."""
        return self._lists.list(prefix, after)

    def list_folder(self, folder: str) -> Folder:
        """See `Objects.list_folder`."""
        return self._lists.list_folder(folder)

    def delete(self, key: str) -> None:
        """See `Objects.delete`."""
        with self._errors(key):
            self._minio.remove_object(self.bucket, key)

    def forget_uploads(self, before: datetime) -> int:
        """See `Objects.forget_uploads`; one call removes at most the first thousand uploads."""
        with self._errors("an upload"):
            return self._minio.forget_uploads(self.bucket, before)

    def now(self) -> datetime:
        """See `Objects.now`; the `Date` of a response.

        The request is not signed: a store refuses signatures of a clock that differs from its own,
        and any response has a date.
        """
        key = "its clock"
        try:
            response = self._pool.request("HEAD", f"{self.endpoint}/{self.bucket}", redirect=False)
        except (HTTPError, OSError) as error:
            raise failure(self.endpoint, key, error) from error
        date = response.headers.get("Date", "")
        try:
            return parsedate_to_datetime(date).replace(tzinfo=UTC)  # HTTP dates are in GMT
        except ValueError:
            wrong = OSError(f"its answer has the date {date!r}")
            raise failure(self.endpoint, key, wrong) from None

    def settings(self) -> "BucketSettings":
        """The bucket's settings for versions, locks and lifecycle. Raises `StoreDown`."""
        from stampede.store.s3.bucket_settings import read_settings

        with self._errors("the settings of the bucket"):
            return read_settings(self._minio, self.bucket)

    def forget_versions(self, prefix: str) -> None:
        """Delete what a bucket with versions keeps of deleted objects under a prefix.

        Raises `StoreDown`, also if a lock or the rights of the keys forbid it.
        """
        from stampede.store.s3.bucket_settings import delete_versions

        if self.settings().versioning:
            with self._errors(prefix):
                delete_versions(self._minio, self.bucket, prefix)

    def close(self) -> None:
        """Close the idle connections."""
        self._pool.clear()

    def _get_by_minio(self, key: str, start: int, length: int | None) -> bytes:
        """As `get`, for what obstore cannot do."""
        try:
            with self._errors(key):
                response = self._minio.get_object(self.bucket, key, start, length or 0)
                try:
                    return response.read()
                finally:
                    response.release_conn()
        except _BeyondTheEnd:
            return b""

    @contextmanager
    def _errors(self, key: str) -> Iterator[None]:
        """The errors of a request through minio-py."""
        from stampede.store.s3.minio_client import MinioException, S3Error

        try:
            yield
        except S3Error as error:
            if error.code in ABSENT:
                raise NotFound(f"the store has no object {key}") from None
            if error.code == "InvalidRange":
                raise _BeyondTheEnd from None
            raise refusal(self.endpoint, error.code or "an error", key) from error
        except (MinioException, HTTPError, OSError) as error:
            raise failure(self.endpoint, key, error) from error


def _exists(bucket: S3Objects, client: "S3Client") -> bool:
    from stampede.store.s3.minio_client import S3Error

    try:
        return client.bucket_exists(bucket.bucket)
    except S3Error as error:
        if error.code == "AccessDenied":
            next(bucket.list(""), None)  # unlike that of a HEAD, its refusal has a reason
        raise


class _BeyondTheEnd(Exception):
    """The range starts at or after the object's end: it has no bytes."""
