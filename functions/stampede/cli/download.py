"""What `stampede get` fetches from the read service: a response, piece by piece, or one error."""

import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple
from urllib.parse import urlencode

import urllib3
from urllib3.exceptions import HTTPError, MaxRetryError

from stampede.errors import SetupError, StampedeError

PIECE = 1 << 16
ATTEMPTS = urllib3.Retry(
    total=5,
    connect=1,
    backoff_factor=0.5,
    status_forcelist=(429, 503, 504),
    allowed_methods=None,
    raise_on_status=False,
)
PATIENCE = urllib3.Timeout(connect=10, read=120)
"""Seconds without a connection, and without a byte of the response."""
INCOMPLETE = "Stampede-Incomplete"
MISSING, LACKING = b"stampede.missing", b"stampede.incomplete"
"""Metadata of Parquet: which ids are not stored, and why rows may be lacking."""
PARQUET = "parquet"
BINARY = {PARQUET, "arrow", "packet"}
NO_END = {"csv", "json", "votable"}
"""Formats that cannot say at their end what they lack: then their connection breaks off."""
ADVICE = "try again, or with --format parquet: it has what can be read, and says what cannot"


class BrokenOff(StampedeError):
    """The connection broke before the end of a response: some of it is lacking."""

    name = "broken-off"


class Server(NamedTuple):
    """A read service: its URL, and the token that it demands."""

    url: str
    token: str | None

    @contextmanager
    def answer(
        self,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        advice: str = "try again",
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """The response to a GET, or to a POST of `body` as JSON; it is yet to be read.

        `advice` is what to do if it breaks off.

        Raises `StampedeError` if there is none, or if it is an error, `BrokenOff` if it is cut.
        """
        url = self.url.rstrip("/") + path
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            with urllib3.PoolManager(headers=headers) as pool:
                found = pool.request(
                    "GET" if body is None else "POST",
                    f"{url}?{urlencode(query)}",
                    json=body,
                    retries=ATTEMPTS,
                    timeout=PATIENCE,
                    preload_content=False,
                )
                if found.status != 200:
                    raise StampedeError(_detail(found, self.url))
                yield found
        except MaxRetryError as error:
            raise SetupError(
                f"no answer from {self.url}: {error.reason}; check --url and that `read` runs"
            ) from None
        except ValueError as error:
            raise StampedeError(
                f"the answer of {self.url} is damaged: {error}; try again"
            ) from None
        except HTTPError as error:
            raise BrokenOff(f"the answer of {self.url} broke off: {error}; {advice}") from None


def _detail(response: urllib3.BaseHTTPResponse, url: str) -> str:
    try:
        problem = json.loads(response.read(PIECE))
        detail = f"{problem['detail']}".removesuffix(": send Authorization: Bearer TOKEN")
        advice = "; give a token with --token or STAMPEDE_TOKEN" if response.status == 401 else ""
        return f"{detail}{advice}"
    except (ValueError, LookupError, TypeError):
        return f"{url} answered {response.status} without saying why: is it Stampede's `read`?"


def said_at_end(file: IO[bytes]) -> str | None:
    """What a file in Parquet says that it lacks; empty if nothing, None if it has no such place.

    Raises `StampedeError` if it is not Parquet.
    """
    from stampede.store.parquet.checksums import PARQUET_ERRORS, pairs_of

    try:
        pairs = pairs_of(file)
        if MISSING not in pairs:
            return None
        return ", ".join(map(str, json.loads(pairs.get(LACKING, b"[]"))))
    except PARQUET_ERRORS as error:
        raise StampedeError(f"the answer is damaged: {error}; try again") from None


@contextmanager
def output(out: Path | None, kind: str) -> Iterator[IO[bytes]]:
    """Where a response goes: a file, which appears when it is whole, or stdout.

    Parquet can be read back.
    """
    if out is None:
        if kind in BINARY and sys.stdout.isatty():
            raise SetupError(f"{kind} is binary: give --out FILE, or a pipe")
        if kind == PARQUET:
            with TemporaryFile() as whole:
                yield whole
                whole.seek(0)
                shutil.copyfileobj(whole, sys.stdout.buffer)
        else:
            yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = out.with_name(f"{out.name}.partial")
    try:
        with partial.open("w+b") as file:
            yield file
        os.replace(partial, out)
    except OSError as error:
        raise SetupError(f"cannot write {out}: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)


def copy(
    server: Server,
    path: str,
    query: Mapping[str, str],
    body: Mapping[str, Any] | None,
    out: Path | None,
    kind: str,
) -> bool:
    """Write a response to a file or to stdout; whether it is whole. If not, stderr says why."""
    advice = ADVICE if query.get("format") in NO_END else "try again"
    with server.answer(path, query, body, advice) as response, output(out, kind) as file:
        piece = b""
        for piece in response.stream(PIECE):
            file.write(piece)
        if out is None and kind in NO_END and piece[-1:] != b"\n":
            file.write(b"\n")  # else the prompt, or the next line, would follow on its line
        lacking = said_at_end(file) if kind == PARQUET else None
        if lacking is None:
            lacking = response.headers.get(INCOMPLETE)
    if lacking:
        print(f"stampede: the answer may lack something: {lacking}", file=sys.stderr)
    return not lacking
