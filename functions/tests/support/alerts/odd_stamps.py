"""Stamps that no survey of the samples sends."""

import gzip
import itertools

import numpy as np
from astropy.io import fits

from stampede.store.objects.object_store import Objects
from stampede.store.offsets.coverage import Coverage
from tests.support.alerts.fits_files import fits_file, lsst, source, ztf
from tests.support.read.read_service import cutout, fill

PIXELS = source()
PLAIN = gzip.decompress(ztf(PIXELS))
EXTREME = PIXELS.copy()
EXTREME[3, 4:8] = np.inf, -np.inf, np.nan, 9e29


def members(*sizes: int) -> bytes:
    """A stamp in several gzip members: of these sizes, and the rest."""
    pairs = itertools.pairwise([0, *np.cumsum(sizes), len(PLAIN)])
    return b"".join(gzip.compress(PLAIN[start:stop], mtime=0) for start, stop in pairs)


WHOLE = {"two members": members(2880), "many members": members(*[1000] * 15)}
"""Of `PIXELS`."""
BROKEN = {
    "other bytes behind gzip": ztf(PIXELS) + b"more",
    "zeros behind gzip": ztf(PIXELS) + bytes(1000),
    "half a member behind gzip": members(2880)[:-20],
    "bytes behind FITS": gzip.compress(PLAIN + b"more"),
    "a block of zeros behind FITS": gzip.compress(PLAIN + bytes(2880)),
    "a second file behind FITS": gzip.compress(PLAIN + PLAIN),
    "bytes behind an HDU": lsst(PIXELS) + b"more",
}
PLANES = {
    "NAXIS3 = 1": fits_file(fits.PrimaryHDU(PIXELS[None])),
    "NAXIS3 = NAXIS4 = 1": fits_file(fits.PrimaryHDU(PIXELS[None, None])),
    "NAXIS3 = 1 of an extension": fits_file(fits.PrimaryHDU(), fits.ImageHDU(PIXELS[None])),
}
"""Of `PIXELS`, with further axes."""
INFINITE = {"single": ztf(EXTREME), "double": ztf(EXTREME.astype(np.float64))}
"""Of `EXTREME`."""
TILED = {
    how: fits_file(fits.PrimaryHDU(), fits.CompImageHDU(PIXELS.round(), compression_type=how))
    for how in ("RICE_1", "GZIP_2")
}
"""Tile-compressed."""
STAMPS = WHOLE | BROKEN | PLANES | INFINITE | TILED
IDS = {name: number for number, name in enumerate(STAMPS, 1)}


def store_stamps(objects: Objects) -> None:
    """Store each as the science cutout of an alert."""
    rows = [
        cutout(IDS[name], "ztf", "science", "ZTF00odd", 59400.0, stamp)
        for name, stamp in STAMPS.items()
    ]
    fill(objects, rows, [], Coverage())
