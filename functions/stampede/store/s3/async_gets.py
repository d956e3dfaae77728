"""Ranged GETs from an S3 bucket on an event loop, without a thread: one try each."""

import asyncio
import re
import ssl
import time
from urllib.parse import urlsplit

from stampede.http.client import Connections
from stampede.store.objects.address import StoreAddress
from stampede.store.s3.credentials import S3Keys
from stampede.store.s3.sigv4 import Signer
from stampede.store.s3.silent_nights import SilentNights
from stampede.telemetry.logs import get_logger

log = get_logger()

AT_ONCE = 32
"""Most GETs under way; others wait."""
# So many GETs without a response, one after the other, and none is tried for a while: `S3Gets`
# would answer, but only after each of them has waited in vain.
_MOST_FAILURES = 3
_PAUSE_SECONDS = 30.0
# The store closes an idle connection after 65 s (Ceph's `request_timeout_ms`).
_IDLE_SECONDS = 30.0
_PLAIN = re.compile(r"[A-Za-z0-9._/-]+")  # keys that are the same in a URL


class S3AsyncGets:
    """Ranges of the objects in one bucket, for one event loop.

    There is no error and no second try: a response that is not exactly the range is None. Ask
    `S3Gets` then, which tries again, with new keys too, and says what is wrong.

    Parameters
    ----------
    endpoint
        ``http(s)://HOST:PORT``.
    connect_seconds, read_seconds
        How long a connection may take, and how long the store may send nothing. A GET may take
        both together, the wait for its turn included.
    silent
        The nights that are not asked for here.
    """

    def __init__(
        self,
        endpoint: str,
        bucket: str,
        address: StoreAddress,
        keys: S3Keys,
        connect_seconds: float,
        read_seconds: float,
        silent: SilentNights,
    ) -> None:
        self._silent = silent
        self._seconds = connect_seconds + read_seconds
        self._failures = 0
        self._paused_until = 0.0  # by the monotonic clock
        self._base = f"{endpoint}/{bucket}/"
        self._host, self._path = urlsplit(endpoint).netloc, f"/{bucket}/"
        self._signer = Signer(keys, address.region) if keys.current.access_key else None
        trust = ssl.create_default_context(cafile=address.ca_file) if address.ca_file else None
        self._connections = Connections(
            AT_ONCE, _IDLE_SECONDS, connect_seconds, read_seconds, trust=trust
        )

    async def get(self, key: str, start: int, length: int) -> bytes | None:
        """Bytes ``[start, start + length)`` of an object; None if they did not come."""
        if not length or not _PLAIN.fullmatch(key) or time.monotonic() < self._paused_until:
            return None
        if self._silent.silent(key):
            return None
        stop, begun = start + length, time.monotonic()
        try:
            # A store that sends a byte now and then must not keep its slot, nor those who wait.
            async with asyncio.timeout(self._seconds):
                # One byte more than there should be tells a response that is too long.
                headers = self._headers(key, start, stop)
                response = await self._connections.get(self._base + key, headers, length + 1)
        except OSError as error:
            self._silent.failed(key, begun)
            self._failed(error)
            return None
        except ValueError:
            return None
        self._failures = 0
        if response.status == 206:
            self._silent.came(key)
        expected = f"bytes {start}-{stop - 1}/"
        if response.status != 206 or not (response.content_range or "").startswith(expected):
            return None
        return response.detail if len(response.detail) == length else None

    def _failed(self, error: OSError) -> None:
        """Count a GET without a response; after several in a row, pause."""
        self._failures += 1
        if self._failures >= _MOST_FAILURES:
            self._failures = 0
            self._paused_until = time.monotonic() + _PAUSE_SECONDS
            log.warning("store does not answer; blocking GETs for a while", error=repr(error))

    async def close(self) -> None:
        """Abort the GETs that are under way, and close the connections."""
        await self._connections.close()

    def _headers(self, key: str, start: int, stop: int) -> dict[str, str]:
        """The headers of a GET, with a signature if there is a key."""
        span = {"Range": f"bytes={start}-{stop - 1}"}
        if self._signer is None:
            return span
        return span | self._signer.get_headers(self._host, self._path + key, time.time())
