"""What proves a sender of events to a function: a key, or a token that is renewed."""

import time
from collections.abc import Mapping
from pathlib import Path

from stampede.config.settings import Settings
from stampede.events.auth.access import key_attribute, key_header

READ_SECONDS = 10.0  # a kubelet renews a token at least minutes before its end


class SenderProof:
    """The headers by which a sender proves itself to a function.

    With a token it sends the key too, if it has one: as an attribute, which a function of an
    earlier version accepts as well. Where functions accept tokens only it sends no key. The token
    is read again every `READ_SECONDS`.
    """

    def __init__(self, settings: Settings) -> None:
        self._bearer = {} if settings.sender_tokens_only else key_header(settings)
        self._attribute = key_attribute(settings)
        self._file: Path | None = settings.sender_token
        self._headers: Mapping[str, str] = self._bearer
        self._read = float("-inf")

    def headers(self) -> Mapping[str, str]:
        """The headers to send with an event now."""
        if self._file and time.monotonic() - self._read > READ_SECONDS:
            self._read = time.monotonic()
            try:
                token = self._file.read_text().strip()
            except OSError:
                self._headers = self._bearer
            else:
                self._headers = self._attribute | {"authorization": f"Bearer {token}"}
        return self._headers
