"""Images are lifted out of a record before it is decoded: they pass the decoder by.

Most of an alert is images, bytes that need no decoding. Each is cut out of the record where it
is found, and a token, which is short, put in its place; where the decoder finds the token, there
the image belongs.

Why this cannot mistake one thing for another: Avro writes bytes as a length and as many bytes. A
decoder that gives a token back as the whole of a value has come, by way of what stands before it,
to where that value's length begins. In the record as it came it would have come to the same
place, and read the image's length and the image. A token that does not come back was put where
no value begins: `Misplaced`, and the batch is decoded as it came. An image that is not found stays
in its record, and comes back as itself.
"""

import os
from collections.abc import Iterator

from stampede.alerts.container import Bytes, varint
from stampede.errors import StampedeError

# How an image begins: a FITS file (FITS standard 4.0, 4.4.1.1; all 30 bytes, as the more there are,
# the greater are the steps of the search), or gzip's magic number and method (RFC 1952, 2.3.1).
MAGIC = {"lsst": b"SIMPLE  = %20s" % b"T", "ztf": b"\x1f\x8b\x08"}
LEAST = 512  # bytes; nothing shorter is worth it
STEP = 1 << 10  # bytes looked through at first
_SECRET = os.urandom(12)  # no survey can send it
_TOKEN = len(_SECRET) + 4
_LENGTH = varint(_TOKEN)


class Misplaced(StampedeError):
    """A token did not come back: what looked like an image was none."""

    name = "misplaced-token"


class ImageTokens:
    """The images of a batch of records of one survey."""

    def __init__(self, survey: str) -> None:
        self._magic = MAGIC[survey]
        self._images: list[Bytes] = []

    def lift(self, record: Bytes) -> list[Bytes]:
        """The record in pieces, a token for each of its images."""
        pieces: list[Bytes] = []
        rest = 0
        for begin, image, end in _images(record, self._magic):
            token = _SECRET + len(self._images).to_bytes(4, "big")
            pieces += record[rest:begin], _LENGTH + token
            self._images.append(record[image:end])
            rest = end
        pieces.append(record[rest:])
        return pieces

    def give_back(self, values: dict[str, list[Bytes | None]]) -> dict[str, list[Bytes | None]]:
        """What was decoded, by kind, an image for every token. Raises `Misplaced`."""
        back = 0

        def image(value: Bytes | None) -> Bytes | None:
            nonlocal back
            if value is None or len(value) != _TOKEN or value[: len(_SECRET)] != _SECRET:
                return value
            back += 1
            return self._images[int.from_bytes(value[len(_SECRET) :], "big")]

        images = {kind: [image(value) for value in of] for kind, of in values.items()}
        if back != len(self._images):
            raise Misplaced(f"{len(self._images)} images were lifted, {back} came back")
        return images


def _images(record: Bytes, magic: bytes) -> Iterator[tuple[int, int, int]]:
    """What may be images: where the length before each begins, where the image begins and ends."""
    at, step = 0, STEP
    while at < len(record):
        found = bytes(record[at : at + step + len(magic) - 1]).find(magic)
        if found < 0:
            at += step
            step *= 4  # images follow each other closely, a history of any length comes first
            continue
        image = at + found
        begin, length = _length_before(record, image)
        at = image + length
        if length >= LEAST and at <= len(record):
            yield begin, image, at
        else:
            at = image + len(magic)
        step = STEP


def _length_before(record: Bytes, at: int) -> tuple[int, int]:
    """Where the varint begins that ends before `at`, and its number; 0 where there is none."""
    before = bytes(record[max(0, at - 5) : at])
    begin, number = len(before) - 1, 0
    if begin < 0 or before[begin] > 0x7F:
        return at, 0
    while begin and before[begin - 1] > 0x7F:
        number = (number | before[begin] & 0x7F) << 7
        begin -= 1
    number |= before[begin] & 0x7F
    return at - len(before) + begin, 0 if number & 1 else number >> 1  # odd: less than nothing
