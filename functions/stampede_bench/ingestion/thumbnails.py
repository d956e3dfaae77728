"""CPU time per alert of each stage of `thumbnails`, without a store.

The rival draws the same panels by astropy and Pillow. It has the files in memory, and only draws.
Hosts differ by a factor of two in CPU time, so the bound is a ratio.
"""

import gzip
import io
from collections.abc import Iterator, Sequence

import numpy as np
from astropy.io import fits
from astropy.visualization import AsinhStretch, PercentileInterval
from PIL import Image

from stampede.alerts.arrays import viewed
from stampede.alerts.columns import KINDS
from stampede.images.thumbnail import GAP, PANEL, SHAPE, thumbnails
from stampede.runtime.decompression import Bytes, is_gzip
from stampede.store.offsets.coverage import Coverage
from stampede.store.packs.alert_versions import shown
from stampede.store.packs.pack import read_rows, write_pack
from stampede.store.runs.schema import THUMBNAIL_PACKS, THUMBNAILS
from stampede_bench.figures import Bound, Context, Figure, Rival
from stampede_bench.ingestion.decode import UNIT, batch_decoder, each_load, per_alert, run_of
from stampede_bench.instruments import load
from stampede_bench.instruments.load import Load

REQUIREMENT, TARGET = Bound("<=", 1 / 3, ratio=True), Bound("<=", 0.6)


def measure(context: Context) -> Iterator[Figure]:
    """A pack of each survey's alerts: simulated ones, and real ones if there are any."""
    count, rounds = context.scaled(300, 100, least=3), context.scaled(5, 3)
    loads = [load.simulated(survey, count, 10) for survey in ("lsst", "ztf")]
    if context.real:
        loads += load.real(context.real, count)
    yield from each_load(context, loads, "drawing", stages, rounds)


def stages(alerts: Load) -> Iterator[Figure]:
    """The figures of one round."""
    cutouts = batch_decoder().cutouts(alerts.messages).rows
    source = write_pack(cutouts, Coverage())
    count, laps = len(alerts.messages), {}
    laps["read"], (rows, coverage) = per_alert(lambda: read_rows(source.data, source.key), count)
    laps["draw"], drawn = per_alert(lambda: thumbnails(shown(rows, "fits")), count)
    laps["pack"], pack = per_alert(lambda: write_pack(drawn.rows, coverage, THUMBNAIL_PACKS), count)
    laps["index run"], _ = per_alert(lambda: run_of(THUMBNAILS, pack.locations, coverage), count)
    subject = f"thumbnails: {alerts.title}"
    for stage, spent in laps.items():
        yield Figure(subject, stage, spent, UNIT)
    files = viewed(cutouts["fits"].chunk(0))
    alone = [files[at : at + len(KINDS)] for at in range(0, len(files), len(KINDS))]
    slow, _ = per_alert(lambda: [drawn_by_astropy(each) for each in alone], count)
    rival = Rival("drawn by astropy and Pillow, and nothing else", slow)
    yield Figure(subject, "all", sum(laps.values()), UNIT, rival, REQUIREMENT, None, TARGET)
    yield Figure(subject, "stored", len(pack.data) / count / 1e3, "KB/alert")


def drawn_by_astropy(files: Sequence[Bytes | None]) -> bytes:
    """A PNG of the cutouts of an alert as a script would draw it: three panels, side by side."""
    height, width = SHAPE
    picture = Image.new("L", (width, height))
    for number, file in enumerate(files):
        if file is None:
            continue
        whole = gzip.decompress(file) if is_gzip(file) else bytes(file)
        with fits.open(io.BytesIO(whole)) as hdus:
            pixels = next(hdu.data for hdu in hdus if hdu.is_image and hdu.data is not None)
            bright = AsinhStretch()(PercentileInterval(99.5)(np.nan_to_num(pixels)))
        panel = Image.fromarray(np.flipud(255 * bright).astype(np.uint8)).resize((PANEL, PANEL))
        picture.paste(panel, (number * (PANEL + GAP), 0))
    png = io.BytesIO()
    picture.save(png, "PNG", compress_level=1)
    return png.getvalue()
