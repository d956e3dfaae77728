"""FITS files like those of the surveys, written with astropy."""

import gzip
from functools import cache, lru_cache
from io import BytesIO

import numpy as np
from astropy.io import fits

from stampede.alerts.surveys.survey import SkyAxes


def source(size: int = 63, peak: float = 500.0, seed: int = 1) -> np.ndarray:
    """A Gaussian source on noise of sigma 10, off centre so that a test sees a flip."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size]
    spot = np.exp(-((x - size * 0.4) ** 2 + (y - size * 0.7) ** 2) / (2 * 1.5**2))
    return (rng.normal(0, 10, (size, size)) + peak * spot).astype(np.float32)


def fits_file(*hdus) -> bytes:
    out = BytesIO()
    fits.HDUList(list(hdus)).writeto(out)
    return out.getvalue()


def ztf(pixels: np.ndarray) -> bytes:
    """ZTF's form: one HDU, the value of SIMPLE in the wrong column, gzipped.

    Tests ask for the same few images hundreds of times, and astropy takes 5 ms for each.
    """
    return _ztf(pixels.tobytes(), pixels.dtype.str, pixels.shape)


@lru_cache(1000)
def _ztf(data: bytes, dtype: str, shape: tuple[int, ...]) -> bytes:
    pixels = np.frombuffer(data, dtype).reshape(shape)
    plain = fits_file(fits.PrimaryHDU(pixels))
    return gzip.compress(b"SIMPLE  =  T".ljust(80) + plain[80:], mtime=0)


@cache
def ztf_source(seed: int) -> bytes:
    """A file of `source(seed=seed)` in ZTF's form."""
    return ztf(source(seed=seed))


def lsst(pixels: np.ndarray) -> bytes:
    """Rubin's form: the image, its uncertainty and its PSF; not gzipped."""
    return fits_file(
        fits.PrimaryHDU(pixels),
        fits.ImageHDU(np.abs(pixels), name="UNCERT"),
        fits.ImageHDU(np.ones((5, 5), np.float32), name="PSFIMAGE"),
    )


def with_sky_axes(file: bytes, axes: SkyAxes) -> bytes:
    """The file with the cards of a matrix PC, in the room that its first header has left."""
    names = ("PC1_1", "PC1_2", "PC2_1", "PC2_2")
    cards = "".join(
        f"{name:8}= {value:>20.12E}".ljust(80) for name, value in zip(names, axes, strict=True)
    )
    end = file.index(b"END".ljust(80))
    header = (file[:end].decode() + cards + "END".ljust(80)).ljust(2880)
    assert len(header) == 2880
    return header.encode() + file[2880:]


def fits_of(rows: int, columns: int, bitpix: int) -> bytes:
    """A FITS file of zeros."""
    cards = [
        ("SIMPLE", "T"),
        ("BITPIX", bitpix),
        ("NAXIS", 2),
        ("NAXIS1", columns),
        ("NAXIS2", rows),
    ]
    text = "".join(f"{name:8}= {value:>20}".ljust(80) for name, value in cards) + "END".ljust(80)
    size = rows * columns * abs(bitpix) // 8
    return text.ljust(2880).encode() + bytes(size + -size % 2880)
