"""The key by which the senders of events prove themselves to a function.

A sender puts it into the header ``Authorization: Bearer KEY``. One that cannot set headers, as
Knative's KafkaSource and PingSource, puts it into the extension attribute ``accesskey``, which
passes through a Broker too. An S3 endpoint has neither: its key is the last part of the URL to
which it posts notifications.

The attribute is taken off every event when the event is parsed, so that the key is never stored,
logged or sent on.
"""

import hmac
import re
from collections.abc import Iterable, Sequence
from urllib.parse import unquote, urlsplit

from stampede.errors import NotAuthorized, SetupError
from stampede.settings import Settings

ATTRIBUTE = "accesskey"
BEARER = "bearer "
# What HTTP allows after `Bearer` (RFC 6750) and what needs no escape in a path.
KEY = re.compile("[A-Za-z0-9._~-]{16,256}")


class AccessKeys:
    """The keys that a function accepts; without any it accepts every sender.

    Parameters
    ----------
    keys
        Two while keys are exchanged, otherwise one or none.
    """

    def __init__(self, keys: Sequence[str]) -> None:
        self._keys = [key.encode() for key in keys]

    def __bool__(self) -> bool:
        return bool(self._keys)

    def check(self, headers: Iterable[tuple[bytes, bytes]], path: str | None = None) -> None:
        """Accept a request, or raise `NotAuthorized`.

        Parameters
        ----------
        path
            Path of the request, whose last part may be the key.
        """
        if not self._keys:
            return
        given = dict(headers)
        offered = [unquote(given.get(b"ce-" + ATTRIBUTE.encode(), b"").decode("latin-1"))]
        authorization = given.get(b"authorization", b"").decode("latin-1")
        if authorization.lower().startswith(BEARER):
            offered.append(authorization[len(BEARER) :].strip())
        if path is not None:
            offered.append(path.rstrip("/").rpartition("/")[2])
        # Compare every pair: the time must not tell which key is nearly right.
        right = [hmac.compare_digest(text.encode(), key) for text in offered for key in self._keys]
        if not any(right):
            raise NotAuthorized(
                "the sender has no key, or a wrong one: set STAMPEDE_EVENT_KEY to the function's"
            )


def access_keys(settings: Settings) -> AccessKeys:
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
    return AccessKeys(keys)


def key_header(settings: Settings) -> dict[str, str]:
    """The header that proves a sender to a function; none if there is no key."""
    key = settings.event_key.get_secret_value()
    return {"authorization": f"Bearer {key}"} if key else {}


def key_attribute(settings: Settings) -> dict[str, str]:
    """The header of the attribute that proves a sender behind a Broker; none without a key."""
    key = settings.event_key.get_secret_value()
    return {f"ce-{ATTRIBUTE}": key} if key else {}


def url_with_key(url: str, settings: Settings) -> str:
    """A URL whose path proves the S3 endpoint that posts to it; unchanged without a key."""
    key = settings.event_key.get_secret_value()
    if not (key and url):
        return url
    parts = urlsplit(url)
    return parts._replace(path=f"{parts.path.rstrip('/')}/{key}").geturl()
