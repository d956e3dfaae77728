"""The keys of one site, which all clients of a bucket share and which may change meanwhile."""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from stampede.config.secret_files import read_keys
from stampede.errors import SetupError, StoreRefused
from stampede.store.objects.address import KEY_FILES, StoreAddress
from stampede.store.s3.url import checked_url
from stampede.telemetry.logs import get_logger

log = get_logger()
T = TypeVar("T")


class KeyPair(NamedTuple):
    """The keys of an S3 user; both are "" for nobody."""

    access_key: str
    secret_key: str


def _is_refusal(error: Exception) -> bool:
    return isinstance(error, StoreRefused)


class S3Keys:
    """Keys that are read again when the store refuses them. Safe to share between threads.

    They are not read before: keys that are mistyped in a Secret then do no harm to a process that
    has good ones. See docs/adr/0045-rotation.md.

    Attributes
    ----------
    current
        The keys to sign the next request with.
    """

    def __init__(self, address: StoreAddress) -> None:
        self._address = address
        self.current = KeyPair(address.access_key, address.secret_key)

    def refused(self, used: KeyPair) -> bool:
        """Whether a request that was refused with the keys `used` may succeed with `current`."""
        if used == self.current:
            self._read(used)
        return used != self.current

    def retry_refused(
        self, send: Callable[[], T], is_refusal: Callable[[Exception], bool] = _is_refusal
    ) -> T:
        """What `send` returns, called once more if the store refuses it and there are other keys.

        Raises what `send` raises.
        """
        used = self.current
        try:
            return send()
        except Exception as error:
            if not (is_refusal(error) and self.refused(used)):
                raise
        return send()

    def _read(self, used: KeyPair) -> None:
        directory = self._address.keys
        try:
            found = read_keys(directory, KEY_FILES)
            if found is None or found == used:
                return
            checked_url(replace(self._address, access_key=found[0], secret_key=found[1]))
        except (SetupError, ValueError) as error:
            log.warning("new keys cannot be used", directory=directory, error=str(error))
            return
        self.current = KeyPair(*found)
        log.info("keys were read again", directory=directory)
