"""The parts in which a body comes, and what they may cost a server.

The parser calls Python once for each chunk, about 1 µs, and each read costs as much as some chunks.
A body of one-byte chunks would keep the event loop busy with 1 MB/s, so parts are counted, not only
bytes: what is between them is bounded, and many small ones are read slowly.
"""

from stampede.errors import BadQuery

# Of a chunk: its size, of 8 digits at most, and the ends of two lines.
CHUNK_FRAMING = 12
EXTENSION_BYTES = 4 << 10  # of chunk extensions and trailers; nobody needs them
# Bytes between parts, beside half as many as the body has: chunks of 10 bytes have so many, and an
# id has 12 at least, with the end of its line 13.
FRAMING_BYTES = 16 << 10
# Parts a second, of all connections of a server together: 2 to 5 % of the event loop's time. A
# million ids in chunks of one id take 50 s.
PARTS_A_SECOND = 20_000
READ_PARTS = 16  # a read costs as much as so many parts
PART_BYTES = 64  # bytes of a body that are worth a part: full packets cost nothing by this
# The least that bytes cost where queries arrive, whatever their parts: 40 MB a second, which are
# three million ids. Four clients that send faster would make everybody's queries five times slower.
QUERY_BYTES_A_PART = 2 << 10
LEAST_SECONDS = 0.004  # a shorter hold would take longer than it says: timers count whole ms


class BodyParts:
    """What has come of one body."""

    def __init__(self) -> None:
        self._wire = self._bytes = self._parts = 0
        self._parts_before = self._bytes_before = 0

    def add(self, size: int) -> None:
        """Count a part of the body."""
        self._bytes += size
        self._parts += 1

    def end_read(self, size: int | None) -> tuple[int, int]:
        """Count a read of `size` bytes, whose parts were added; None if the body began in it.

        Returns
        -------
        tuple
            The parts and the bytes of the body in this read.

        Raises
        ------
        BadQuery
            The body's chunks are too small, or have extensions that are too long.
        """
        parts, moved = self._parts - self._parts_before, self._bytes - self._bytes_before
        self._parts_before, self._bytes_before = self._parts, self._bytes
        self._wire += moved if size is None else size
        framing = self._wire - self._bytes
        if framing > CHUNK_FRAMING * self._parts + EXTENSION_BYTES:
            raise BadQuery(
                f"the body's chunks have more than {EXTENSION_BYTES:,} bytes of extensions"
            )
        if framing > self._bytes // 2 + FRAMING_BYTES:
            raise BadQuery("the body's chunks are too small: send larger ones, or Content-Length")
        return parts, moved


class PartRate:
    """How fast all connections of a server together may read small parts, and bytes.

    Parameters
    ----------
    bytes_a_part
        So many bytes cost as much as a part, however large the parts are that they came in; None if
        large parts cost nothing.
    """

    def __init__(self, bytes_a_part: int | None = None) -> None:
        self._free = 0.0  # when the parts of all reads so far will have had their time
        self._bytes_a_part = bytes_a_part

    def hold(self, parts: int, size: int, now: float) -> float:
        """Seconds for which a connection must not read, after a read of `size` bytes of a body."""
        excess: float = READ_PARTS + parts - size // PART_BYTES
        if self._bytes_a_part:
            excess = max(excess, size / self._bytes_a_part)
        if excess <= 0:
            return 0.0
        self._free = max(self._free, now) + excess / PARTS_A_SECOND
        seconds = self._free - now
        return seconds if seconds >= LEAST_SECONDS else 0.0
