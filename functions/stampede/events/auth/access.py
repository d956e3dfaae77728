"""Who may send events to a function: a sender that proves itself by the key, or by a token.

A sender puts the key into the header ``Authorization: Bearer KEY``. One that cannot set headers, as
Knative's KafkaSource and PingSource, puts it into the extension attribute ``accesskey``, which
passes through a Broker too. An S3 endpoint has neither: its key is the last part of the URL to
which it posts notifications.

The attribute is taken off every event when the event is parsed, so that the key is never stored,
logged or sent on. Tokens are in `sender_tokens`.
"""

import hmac
import re
from collections.abc import Iterable, Mapping, Sequence
from urllib.parse import unquote, urlsplit

from stampede.config.settings import Settings
from stampede.errors import NotAuthorized, SetupError
from stampede.events.auth.sender_tokens import SenderTokens, sender_tokens

ATTRIBUTE = "accesskey"
BEARER = "bearer "
KEY_HEADER = f"ce-{ATTRIBUTE}"
# What HTTP allows after `Bearer` (RFC 6750) and what needs no escape in a path.
KEY = re.compile("[A-Za-z0-9._~-]{16,256}")


class Senders:
    """The senders that a function accepts; without keys and tokens every sender.

    Parameters
    ----------
    keys
        Two while keys are exchanged, otherwise one or none.
    tokens
        Which tokens are accepted; None: none.
    tokens_only
        Whether a key counts only as part of the path: an S3 endpoint has no token.
    """

    def __init__(
        self,
        keys: Sequence[str] = (),
        tokens: SenderTokens | None = None,
        tokens_only: bool = False,
    ) -> None:
        self._keys = [key.encode() for key in keys]
        self._tokens = tokens
        self._tokens_only = tokens_only

    async def check(self, headers: Iterable[tuple[bytes, bytes]], path: str | None = None) -> None:
        """Accept a request, or raise an error.

        Parameters
        ----------
        path
            Path of the request, whose last part may be the key.

        Raises
        ------
        NotAuthorized
            The sender has no key and no token, or wrong ones.
        IssuerDown
            It has a token, which cannot be verified now.
        """
        if not (self._keys or self._tokens):
            return
        given = dict(headers)
        bearer = _bearer(given)
        if self._tokens and bearer and self._tokens.knows(bearer):
            return
        offered = [] if path is None else [path.rstrip("/").rpartition("/")[2]]
        if not self._tokens_only:
            offered.append(unquote(given.get(KEY_HEADER.encode(), b"").decode("latin-1")))
            offered.append(bearer)
        # Compare every pair: the time must not tell which key is nearly right.
        right = [hmac.compare_digest(text.encode(), key) for text in offered for key in self._keys]
        if any(right):
            return
        if self._tokens and bearer.count(".") == 2:  # a signed JSON Web Token
            await self._tokens.check(bearer)
            return
        raise NotAuthorized(self._wanted)

    def without_key(self, path: str) -> str:
        """A path for events and messages: a sender may add its key to that of a wrong function."""
        before, slash, last = path.rstrip("/").rpartition("/")
        return f"{before}{slash}KEY" if last.encode() in self._keys else path

    @property
    def _wanted(self) -> str:
        if self._tokens_only:
            return "the sender has no token of a service account: send Authorization: Bearer TOKEN"
        return "the sender has no key, or a wrong one: set STAMPEDE_EVENT_KEY to the function's"


def senders(settings: Settings) -> Senders:
    """The senders of the settings. Raises `SetupError` if a setting cannot work."""
    tokens = sender_tokens(settings)
    return Senders(access_keys(settings), tokens, settings.sender_tokens_only)


def access_keys(settings: Settings) -> list[str]:
    """The keys of the settings. Raises `SetupError` if one cannot be sent."""
    keys = []
    for name in ("event_key", "second_event_key"):
        key = getattr(settings, name).get_secret_value()
        if key and not KEY.fullmatch(key):
            raise SetupError(
                f"STAMPEDE_{name.upper()} is not a key: 16 to 256 letters, digits and . _ ~ -"
            )
        if key:
            keys.append(key)
    return keys


def key_header(settings: Settings) -> dict[str, str]:
    """The header that proves a sender to a function; none if there is no key."""
    key = settings.event_key.get_secret_value()
    return {"authorization": f"Bearer {key}"} if key else {}


def key_attribute(settings: Settings) -> dict[str, str]:
    """The header of the attribute that proves a sender behind a Broker; none without a key, or
    where functions accept tokens only."""
    key = settings.event_key.get_secret_value()
    return {KEY_HEADER: key} if key and not settings.sender_tokens_only else {}


def url_with_key(url: str, settings: Settings) -> str:
    """A URL whose path proves the S3 endpoint that posts to it; unchanged without a key."""
    key = settings.event_key.get_secret_value()
    if not (key and url):
        return url
    parts = urlsplit(url)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{key}").geturl()


def _bearer(headers: Mapping[bytes, bytes]) -> str:
    """What follows `Bearer` in the header; empty if nothing does."""
    authorization = headers.get(b"authorization", b"").decode("latin-1")
    if not authorization.lower().startswith(BEARER):
        return ""
    return authorization[len(BEARER) :].strip()
