"""Bearer tokens (RFC 6750): a file of their digests, read again when it changes.

One line a token, ``NAME SCOPES sha256:DIGEST [EXPIRES]``: scopes separated by commas or ``*`` for
all, the last day as ``YYYY-MM-DD``; ``#`` begins a comment. ``stampede token new`` writes a line.

A token has 256 random bits, so a plain SHA-256 protects it as well as a slow hash would: nobody
can try them all.
"""

import hashlib
import secrets
import threading
import time
from collections.abc import Iterable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

from stampede.errors import SetupError
from stampede.telemetry.logs import get_logger

log = get_logger()

SCOPES = ("pages", "cutouts", "lightcurves", "bulk", "ledger")
"""Groups of routes. Health, metrics and the description of the API need no token."""
ALL = "*"
CHECK_SECONDS = 1.0
_PREFIX = "stampede_"  # by which a scanner of published files recognises a lost token
_DIGEST = "sha256:"


class Token(NamedTuple):
    """What is known of a token: all but the token itself."""

    name: str
    scopes: frozenset[str]
    expires: date | None = None

    def allows(self, scope: str) -> bool:
        """Whether it opens the routes of this scope."""
        return scope in self.scopes or ALL in self.scopes


def new_token() -> str:
    """A token that nobody can guess."""
    return _PREFIX + secrets.token_urlsafe(32)


def digest(token: str) -> str:
    """What the file holds of a token."""
    return _DIGEST + hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()


def line_of(token: str, name: str, scopes: Iterable[str], expires: date | None = None) -> str:
    """The line of the file. Raises `SetupError` if it could not be read again."""
    last = f" {expires.isoformat()}" if expires else ""
    scopes = [*scopes]
    line = f"{name} {','.join(scopes)} {digest(token)}{last}"
    if parse(line) != {digest(token): Token(name, frozenset(scopes), expires)}:
        raise SetupError(f"{name!r} is no name of a token: it has spaces or a #")
    return line


def parse(text: str) -> dict[str, Token]:
    """The tokens of a file, by digest. Raises `SetupError` at a line that is not understood."""
    tokens = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            key, token = _token(words)
        except ValueError as error:
            # Not the line itself: it may be a token in place of its digest.
            raise SetupError(f"line {number} of the tokens' file: {error}") from None
        tokens[key] = token
    return tokens


def _token(words: list[str]) -> tuple[str, Token]:
    if len(words) not in (3, 4):
        raise ValueError("it must be NAME SCOPES sha256:DIGEST [EXPIRES]")
    name, text, key, *last = words
    scopes = frozenset(text.split(","))
    if unknown := scopes - {*SCOPES, ALL}:
        raise ValueError(f"unknown scope {min(unknown)!r}; known: {', '.join(SCOPES)}, {ALL}")
    if not key.startswith(_DIGEST) or len(key) != len(digest("")):
        raise ValueError("no digest: `stampede token new` prints one")
    return key, Token(name, scopes, date.fromisoformat(last[0]) if last else None)


class TokenFile:
    """The tokens of a file. If it changes they are read again, without a restart.

    A change that cannot be read is logged, and the tokens before it stay. Raises `SetupError` if
    the file cannot be read at the start.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._checked = float("-inf")
        self._stamp: tuple[int, ...] = ()
        try:
            self._stamp = self._stamp_now()
            self._tokens = parse(path.read_text())
        except (OSError, UnicodeDecodeError) as error:
            raise SetupError(f"STAMPEDE_TOKENS={path}: {error}") from None

    def find(self, token: str) -> Token | None:
        """The token, unless it is unknown or has expired."""
        self._refresh()
        found = self._tokens.get(digest(token))
        if found and found.expires and datetime.now(UTC).date() > found.expires:
            return None
        return found

    def _refresh(self) -> None:
        with self._lock:
            if time.monotonic() - self._checked < CHECK_SECONDS:
                return
            self._checked = time.monotonic()
            try:
                stamp = self._stamp_now()
                if stamp != self._stamp:
                    self._tokens = parse(self._path.read_text())
                    self._stamp = stamp
                    log.info("tokens read", tokens=len(self._tokens))
            except (OSError, UnicodeDecodeError, SetupError) as error:
                log.error("tokens not read: those of before stay", error=str(error))

    def _stamp_now(self) -> tuple[int, ...]:
        status = self._path.stat()  # of the file that a link of Kubernetes points to now
        return status.st_mtime_ns, status.st_ino, status.st_size
