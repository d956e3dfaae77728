"""What `stampede get` fetches from the read service: an answer, piece by piece, or one error."""

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple
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
"""Seconds without a connection, and without a byte of the answer."""
INCOMPLETE = "Stampede-Incomplete"
BINARY = {"parquet", "arrow", "packet"}


class Server(NamedTuple):
    """A read service: its URL, and the token that it demands."""

    url: str
    token: str | None

    @contextmanager
    def answer(
        self, path: str, query: Mapping[str, str], ids: list[str] | None = None
    ) -> Iterator[urllib3.BaseHTTPResponse]:
        """The answer to a GET, or to a POST of `ids`; its body is yet to be read.

        Raises `StampedeError` if there is none, or if it is an error.
        """
        url = self.url.rstrip("/") + path
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        try:
            with urllib3.PoolManager(headers=headers) as pool:
                found = pool.request(
                    "GET" if ids is None else "POST",
                    f"{url}?{urlencode(query)}",
                    json=None if ids is None else {"ids": ids},
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
        except (HTTPError, ValueError) as error:
            raise StampedeError(f"the answer of {self.url} broke off: {error}; try again") from None


def _detail(answer: urllib3.BaseHTTPResponse, url: str) -> str:
    try:
        problem = json.loads(answer.read(PIECE))
        return f"{problem['detail']}"
    except (ValueError, LookupError, TypeError):
        return f"{url} answered {answer.status} without saying why: is it Stampede's `read`?"


def is_whole(answer: urllib3.BaseHTTPResponse) -> bool:
    """Whether the server knows of nothing that the answer lacks; if it does, say so on stderr."""
    if reasons := answer.headers.get(INCOMPLETE):
        print(f"stampede: the answer may lack something: {reasons}", file=sys.stderr)
    return not reasons


@contextmanager
def output(out: Path | None, kind: str) -> Iterator[IO[bytes]]:
    """Where an answer goes: a file, which appears when it is whole, or stdout."""
    if out is None:
        if kind in BINARY and sys.stdout.isatty():
            raise SetupError(f"{kind} is binary: give --out FILE, or a pipe")
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    partial = out.with_name(f"{out.name}.partial")
    try:
        with partial.open("wb") as file:
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
    ids: list[str] | None,
    out: Path | None,
    kind: str,
) -> bool:
    """Write an answer to a file or to stdout; whether it is whole."""
    with server.answer(path, query, ids) as answer, output(out, kind) as file:
        for piece in answer.stream(PIECE):
            file.write(piece)
        return is_whole(answer)
