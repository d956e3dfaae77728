"""Images bypass the decoder: a short token replaces each of them in its record.

Most of an alert is images, bytes that need no decoding. `ImageTokens.replace` cuts each image out
of its record and puts a token in its place. `ImageTokens.restore` puts the image back where the
decoder finds the token.

Why this is safe: Avro writes bytes as a length followed by the bytes. If the decoder returns a
token as a whole value, it has parsed everything before the value and read the value's length at
this position. In the original record it would have reached the same position, and read the image's
length and the image. A token that does not come back was put where no value begins. Then `restore`
raises `Misplaced`, and the caller decodes the original records. An image that the search does not
find stays in its record, and the decoder returns it unchanged.

No sender may be able to put a token into a record, so a token begins with a random secret.
"""

from collections.abc import Iterator

from stampede.alerts.container import varint
from stampede.errors import StampedeError
from stampede.runtime.decompression import Bytes

LEAST = 512  # bytes of an image; replacing a shorter one saves nothing
STEP = 1 << 10  # bytes that the search looks through at first


class Misplaced(StampedeError):
    """A token did not come back: it replaced something that is not an image."""

    name = "misplaced-token"


class ImageTokens:
    """The images of a batch of records of one survey.

    Parameters
    ----------
    magic
        The first bytes of every image.
    secret
        Random bytes that no sender can guess, 12 or more.
    """

    def __init__(self, magic: bytes, secret: bytes) -> None:
        self._magic = magic
        self._secret = secret
        self._size = len(secret) + 4
        self._length = varint(self._size)
        self._images: list[Bytes] = []

    def replace(self, record: Bytes) -> list[Bytes]:
        """The record in pieces, with a token in place of each of its images."""
        pieces: list[Bytes] = []
        rest = 0
        for begin, image, end in _images(record, self._magic):
            token = self._secret + len(self._images).to_bytes(4, "big")
            pieces += record[rest:begin], self._length + token
            self._images.append(record[image:end])
            rest = end
        pieces.append(record[rest:])
        return pieces

    def restore(self, values: dict[str, list[Bytes | None]]) -> dict[str, list[Bytes | None]]:
        """Decoded values by kind, with the image in place of each token. Raises `Misplaced`."""
        restored = 0

        def image(value: Bytes | None) -> Bytes | None:
            nonlocal restored
            if value is None or len(value) != self._size or value[:-4] != self._secret:
                return value
            restored += 1
            return self._images[int.from_bytes(value[-4:], "big")]

        images = {kind: [image(value) for value in column] for kind, column in values.items()}
        if restored != len(self._images):
            raise Misplaced(f"{len(self._images)} tokens went in, {restored} came back")
        return images


def _images(record: Bytes, magic: bytes) -> Iterator[tuple[int, int, int]]:
    """Candidates: where the length before an image begins, and where the image begins and ends."""
    at, step = 0, STEP
    while at < len(record):
        found = bytes(record[at : at + step + len(magic) - 1]).find(magic)
        if found < 0:
            at += step
            step *= 4  # images lie close together, but a history of any length comes first
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
    """The varint that ends before `at`: where it begins, and its value; (`at`, 0) if none does."""
    before = bytes(record[max(0, at - 5) : at])
    begin, number = len(before) - 1, 0
    if begin < 0 or before[begin] > 0x7F:
        return at, 0
    while begin and before[begin - 1] > 0x7F:
        number = (number | before[begin] & 0x7F) << 7
        begin -= 1
    number |= before[begin] & 0x7F
    return at - len(before) + begin, 0 if number & 1 else number >> 1  # an odd one is negative
