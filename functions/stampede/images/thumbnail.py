"""Thumbnails: the cutouts of an alert side by side in one small picture.

Science, template and difference are squares of 63 pixels. That is ZTF's own size, so its pixels
are shown unchanged. Images of other sizes (Rubin's have 30 to 102 pixels) are scaled: larger ones
by averaging pixels, smaller ones by repeating them. Each image has its own asinh stretch, since
the images of a survey differ in zero point: see `stampede.images.stretch`. A cutout that the
survey did not send is an empty frame; a damaged one is a crossed frame.

Only 32 of 256 greys are used. The eye sees no difference, since the noise of the sky spans several
of the 32, and a thumbnail of a real ZTF alert takes 5.0 KB instead of 9.0. Drawing one takes
0.45 ms (`stampede bench thumbnails`).
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from PIL import Image

from stampede.alerts.columns import KINDS, THUMBNAIL
from stampede.images import fits
from stampede.images.png import BLANK, encode, frame, greys, scaled

PANEL, GAP = 63, 2
"""Side of each image, and gap between two images: pixels."""
SHAPE = (PANEL, len(KINDS) * PANEL + (len(KINDS) - 1) * GAP)
"""Rows and columns of a thumbnail: 63 x 193."""
LEVELS = 32
MAX_BYTES = 4 << 20
"""Largest FITS file to draw, 30 times Rubin's: a thousand of them must not take long."""

_FEWER = np.rint(np.rint(np.arange(256) * (LEVELS - 1) / 255) * 255 / (LEVELS - 1)).astype(np.uint8)


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
    heads = cutouts["fits"]
    tails = cutouts["tail"] if "tail" in cutouts.column_names else None

    def file(row: int | None) -> bytes | None:
        head = None if row is None else heads[row].as_py()
        return head if head is None or tails is None else head + tails[row].as_py()

    drawn = [thumbnail([file(rows.get(kind)) for kind in KINDS]) for rows in alerts.values()]
    panels = sum((one.panels for one in drawn), Counter[str]())
    first = pa.array([next(iter(rows.values())) for rows in alerts.values()], pa.int64())
    heads = cutouts.select(THUMBNAIL.names[:-1]).take(first)
    rows = heads.append_column("png", pa.array([one.png for one in drawn], pa.binary()))
    return Thumbnails(rows.cast(THUMBNAIL), panels)


def thumbnail(files: Sequence[bytes | None]) -> Thumbnail:
    """The thumbnail of an alert: a grey picture of `SHAPE`.

    Parameters
    ----------
    files
        Its FITS files, gzipped or not, in the order of `KINDS`; None for one not sent.
    """
    panels: Counter[str] = Counter()
    picture = np.zeros(SHAPE, np.uint8)
    for number, file in enumerate(files):
        left = number * (PANEL + GAP)
        outcome, picture[:, left : left + PANEL] = _panel(file)
        panels[outcome] += 1
    return Thumbnail(encode(_FEWER[picture]), panels)


def _panel(file: bytes | None) -> tuple[str, np.ndarray]:
    if file is None:
        return "absent", frame(PANEL, crossed=False)
    try:
        image = greys(fits.image(file, MAX_BYTES))
        if max(image.shape) != PANEL:
            image = scaled(image, PANEL, Image.Resampling.BOX)
    except Exception:  # whatever is wrong with one image, the others of its pack are drawn
        return "damaged", frame(PANEL, crossed=True)
    if image.shape == (PANEL, PANEL):
        return "image", image
    height, width = image.shape  # cut off by the detector's edge: centred
    top, left = (PANEL - height) // 2, (PANEL - width) // 2
    panel = np.full((PANEL, PANEL), BLANK, np.uint8)
    panel[top : top + height, left : left + width] = image
    return "image", panel
