"""Thumbnails: the cutouts of an alert side by side in one small picture.

Science, template and difference are squares of 63 pixels, with north up: see
`stampede.images.orientation`. That is ZTF's own size, so its pixels are shown unchanged. Images of
other sizes (Rubin's have 30 to 102 pixels) are scaled: larger ones by averaging pixels, smaller
ones by repeating them. Each image has its own asinh stretch, since the images of a survey differ in
zero point: see `stampede.images.stretch`. A cutout that the survey did not send is an empty frame;
a damaged one is a crossed frame.

Only 32 of 256 greys are used. The eye sees no difference, since the noise of the sky spans several
of the 32, and a thumbnail of a real ZTF alert takes 5.0 KB instead of 9.0.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from isal import isal_zlib

from stampede.alerts.arrays import viewed
from stampede.alerts.columns import KINDS, THUMBNAIL
from stampede.images import fits
from stampede.images.orientation import (
    NO_TURN,
    Turn,
    quarter_turned,
    sky_axes,
    turn_of,
    turned_in_square,
)
from stampede.images.png import BLANK, encode, frame, scaled
from stampede.images.stretch import Stretch, curve, limits
from stampede.runtime.decompression import Bytes

DRAWING = 1
"""Number of this way to draw. Raise it with every change of what is drawn: then `scrub` draws the
stored thumbnails again, and replaces those that differ."""
PANEL, GAP = 63, 2
"""Side of each image, and gap between two images: pixels."""
SHAPE = (PANEL, len(KINDS) * PANEL + (len(KINDS) - 1) * GAP)
"""Rows and columns of a thumbnail: 63 x 193."""
LEVELS = 32
MAX_BYTES = 4 << 20
"""Largest FITS file to draw, 30 times Rubin's: a thousand of them must not take long."""

_FEWER = np.rint(np.rint(np.arange(256) * (LEVELS - 1) / 255) * 255 / (LEVELS - 1)).astype(np.uint8)
_ABSENT, _DAMAGED = (_FEWER[frame(PANEL, crossed)] for crossed in (False, True))
_STEPS = 1 << 16
_BRIGHT = np.rint(255 * curve((np.arange(_STEPS) + 0.5) / _STEPS, Stretch.ASINH)).astype(np.uint8)
_GREYS = np.concatenate((np.array([BLANK], np.uint8), _BRIGHT))
"""Grey of a pixel by its place between the limits, from 1 on; that of a pixel without a value."""
_FEWER_GREYS = _FEWER[_GREYS]


class Thumbnail(NamedTuple):
    """The PNG of an alert, and how many panels are an ``image``, ``absent`` or ``damaged``."""

    png: bytes
    panels: Counter[str]


class Thumbnails(NamedTuple):
    """Rows of `THUMBNAIL`, and the panels of all of them, counted as in `Thumbnail`."""

    rows: pa.Table
    panels: Counter[str]


def thumbnails(cutouts: pa.Table) -> Thumbnails:
    """One thumbnail per alert of `cutouts`, rows of `CUTOUT` or `PACKED_CUTOUT` in any order."""
    alerts: dict[tuple[int, str], dict[str, int]] = {}
    keys = (cutouts[name].to_pylist() for name in ("alert_id", "survey", "kind"))
    for row, (alert_id, survey, kind) in enumerate(zip(*keys, strict=True)):
        alerts.setdefault((alert_id, survey), {})[kind] = row
    pngs, panels = [], Counter[str]()
    checksums, numbers = _checksums(cutouts), []
    for (_, survey), rows in alerts.items():
        of_kinds = [rows.get(kind) for kind in KINDS]
        drawn = _of_rows(cutouts, of_kinds, survey)
        pngs.append(drawn.png)
        panels.update(drawn.panels)
        numbers.append(drawn_from([None if row is None else checksums[row] for row in of_kinds]))
    first = pa.array([next(iter(rows.values())) for rows in alerts.values()], pa.int64())
    named = cutouts.select(THUMBNAIL.names[:-2]).take(first)
    drawn_of = named.append_column("drawn_from", pa.array(numbers, pa.uint32()))
    whole = drawn_of.append_column("png", pa.array(pngs, pa.binary()))
    return Thumbnails(whole.cast(THUMBNAIL), panels)


def drawn_from(checksums: Sequence[int | None]) -> int:
    """What a thumbnail is drawn from, as a number of 32 bits: the column `drawn_from`.

    Equal if the same code draws equal files. Two alerts share theirs once in 2^32.

    Parameters
    ----------
    checksums
        The CRC-32 of each file as sent, in the order of `KINDS`; None for one not sent.
    """
    number = isal_zlib.crc32(DRAWING.to_bytes(4, "little"))
    for checksum in checksums:
        sent = b"" if checksum is None else checksum.to_bytes(4, "little")
        number = isal_zlib.crc32(bytes([len(sent)]) + sent, number)
    return number


def _checksums(cutouts: pa.Table) -> list[int | None]:
    """The CRC-32 of the file in each row; None where there is none."""
    heads = (head for chunk in cutouts["fits"].chunks for head in viewed(chunk))
    found = [None if head is None else isal_zlib.crc32(head) for head in heads]
    if "tail" not in cutouts.column_names:
        return found
    for row, tail in enumerate(_tails(cutouts["tail"])):
        checksum = found[row]
        if tail and checksum is not None:
            found[row] = isal_zlib.crc32(tail, checksum)
    return found


def _tails(column: pa.ChunkedArray) -> Iterator[memoryview | None]:
    for chunk in column.chunks:
        encoded = chunk.dictionary_encode()
        entries = viewed(encoded.dictionary)
        for number in encoded.indices.to_pylist():
            yield None if number is None else entries[number]


def _of_rows(cutouts: pa.Table, rows: Sequence[int | None], survey: str) -> Thumbnail:
    """The thumbnail of the cutouts in these rows; None for a kind that the alert does not have."""
    files = [None if row is None else cutouts["fits"][row].as_buffer() for row in rows]
    heads = [None if file is None else memoryview(file).cast("B") for file in files]
    drawn = thumbnail(heads, survey)
    if drawn.panels["damaged"] and "tail" in cutouts.column_names:
        # The first image of a file is seldom in its tail, and joining costs a copy.
        tails = [None if row is None else cutouts["tail"][row].as_py() for row in rows]
        pairs = zip(heads, tails, strict=True)
        whole = [None if head is None else bytes(head) + (tail or b"") for head, tail in pairs]
        drawn = thumbnail(whole, survey)
    return drawn


def thumbnail(files: Sequence[Bytes | None], survey: str | None = None) -> Thumbnail:
    """The thumbnail of an alert: a grey picture of `SHAPE`.

    Parameters
    ----------
    files
        Its FITS files, gzipped or not, in the order of `KINDS`; None for one not sent.
    survey
        Its name: says where north is if a file does not.
    """
    panels: Counter[str] = Counter()
    picture = np.zeros(SHAPE, np.uint8)
    for number, file in enumerate(files):
        left = number * (PANEL + GAP)
        outcome, picture[:, left : left + PANEL] = _panel(file, survey)
        panels[outcome] += 1
    return Thumbnail(encode(picture), panels)


def _panel(file: Bytes | None, survey: str | None) -> tuple[str, np.ndarray]:
    if file is None:
        return "absent", _ABSENT
    try:
        pixels, hdu = fits.first_image(file, MAX_BYTES)
        image = _drawn(pixels, turn_of(sky_axes(hdu, survey)))
    except Exception:  # whatever is wrong with one image, the others of its pack are drawn
        return "damaged", _DAMAGED
    if image.shape == (PANEL, PANEL):
        return "image", image
    height, width = image.shape  # cut off by the detector's edge: centred
    top, left = (PANEL - height) // 2, (PANEL - width) // 2
    panel = np.full((PANEL, PANEL), _FEWER[BLANK], np.uint8)
    panel[top : top + height, left : left + width] = image
    return "image", panel


def _drawn(image: np.ndarray, turn: Turn = NO_TURN) -> np.ndarray:
    """The picture of an image, whose longer side is `PANEL` pixels, in `LEVELS` greys."""
    longer = max(image.shape)
    if longer > PANEL:
        picture = _FEWER[scaled(_looked_up(image, _GREYS), PANEL, averaged=True)]
    else:
        picture = _looked_up(image, _FEWER_GREYS)
    if turn.degrees % 90:
        return turned_in_square(picture, turn, PANEL, int(_FEWER[BLANK]))
    return _repeated(quarter_turned(picture, turn)[0])


def _repeated(picture: np.ndarray) -> np.ndarray:
    """The picture with its pixels repeated, so that its longer side is `PANEL`."""
    longer = max(picture.shape)
    if longer == PANEL:
        return picture
    down, across = (_repeats(side, longer) for side in picture.shape)
    return picture.take(across, 1).take(down, 0)


@np.errstate(over="ignore", invalid="ignore")  # pixels of 1e308
def _looked_up(image: np.ndarray, greys: np.ndarray) -> np.ndarray:
    """The picture of an image, row 0 at the top; `greys` is `_GREYS` or `_FEWER_GREYS`.

    As `png.greys`, but from a table: 3 of 10,000 pixels get the next of `LEVELS` greys. It takes
    17 us for 63 x 63 pixels instead of 47, whatever vector instructions a machine has.
    """
    black, white = limits(image)
    x = image.astype(np.float64).clip(black, white)
    x -= black
    x *= (_STEPS - 1) / (white - black) if white > black else 0.0
    x += 1
    np.fmax(x, 0, out=x)  # NaN becomes 0, the place of a pixel without a value
    return greys.take(x.astype(np.intp))[::-1]


@cache
def _repeats(side: int, longer: int) -> np.ndarray:
    """Which pixel of a side to show where, in a panel whose longer side has `longer` pixels."""
    size = max(1, round(side * PANEL / longer))
    return ((np.arange(size) + 0.5) * side / size).astype(np.intp)
