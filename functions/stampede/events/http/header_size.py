"""Bounds on a request's header, and on the trailers behind its body."""

from stampede.errors import TooManyHeaders

# An event has 256 attributes at most; proxies add some headers. The parser calls Python for each,
# and a header of 5 bytes takes 130 of memory.
MOST_HEADERS = 400


class HeaderSize:
    """Bytes and number of the headers of one request, or of its trailers.

    The parser keeps an unfinished header to itself, so what it was given is counted too.

    Parameters
    ----------
    most
        Most bytes of target and headers.

    Attributes
    ----------
    refusal
        What was raised, once they are too many.
    """

    def __init__(self, most: int) -> None:
        self.refusal: TooManyHeaders | None = None
        self._most = most
        self._given = self._parsed = self._headers = 0

    def add_read(self, size: int) -> None:
        """Count a read that did not end the header; raise TooManyHeaders if it is too long."""
        self._given += size
        if self._given > self._most:
            raise self._too_many()

    def add_target(self, size: int) -> None:
        """Count a part of the target; raise TooManyHeaders if it is too long."""
        self._parsed += size
        if self._parsed > self._most or self._headers > MOST_HEADERS:
            raise self._too_many()

    def add_header(self, size: int) -> None:
        """Count a header; raise TooManyHeaders if they are too many or too long."""
        self._headers += 1
        self.add_target(size)

    def _too_many(self) -> TooManyHeaders:
        self.refusal = TooManyHeaders(
            f"the request has more than {self._most:,} bytes of headers, or more than "
            f"{MOST_HEADERS} headers"
        )
        return self.refusal
