"""Cutouts of a simulated alert: small FITS files of a star, its host galaxy and noise.

Headers are made once as bytes, and the few numbers that differ are written into them: astropy takes
longer for one header than a whole alert may take. Noise is a slice of one long strip.
"""

import math
from functools import cache

import numpy as np
from isal import igzip_lib

BLOCK = 2880  # FITS is written in blocks of this many bytes
STRIP = 1 << 18


def card(key: str, value: str | int | float | bool, comment: str = "") -> bytes:
    """One fixed-format header card of 80 bytes (FITS standard 4.0, section 4.2)."""
    match value:
        case bool():
            text = f"{'T' if value else 'F':>20}"
        case str():
            text = f"'{value:<8}'"
        case int():
            text = f"{value:>20}"
        case _:
            text = real(value)
    end = f" / {comment}" if comment else ""
    return f"{key:<8}= {text}{end}".ljust(80).encode("ascii")


def real(number: float) -> str:
    """The value of a card, as wcslib writes it: 14 digits, 20 columns."""
    return f"{number:>20.14G}"


def block(cards: list[bytes]) -> bytes:
    """A header of these cards, padded to whole blocks."""
    header = b"".join(cards) + b"END".ljust(80)
    return header.ljust(-(-len(header) // BLOCK) * BLOCK)


def data(array: np.ndarray) -> bytes:
    """The data of a FITS image: big-endian, padded with zeros to whole blocks."""
    raw = array.astype(array.dtype.newbyteorder(">")).tobytes()
    return raw.ljust(-(-len(raw) // BLOCK) * BLOCK, b"\0")


def size_cards(array_shape: tuple[int, int], bitpix: int) -> list[bytes]:
    """The cards of an image's size."""
    height, width = array_shape
    return [
        card("BITPIX", bitpix),
        card("NAXIS", 2),
        card("NAXIS1", width),
        card("NAXIS2", height),
    ]


@cache
def noise_strip(seed: int) -> np.ndarray:
    """Standard normal noise, float32. Each image takes a slice of it."""
    return np.random.default_rng([seed, 99]).standard_normal(STRIP, dtype=np.float32)


def noise(seed: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """A noise image of size x size pixels and 1 sigma."""
    start = int(rng.integers(0, STRIP - size * size))
    return noise_strip(seed)[start : start + size * size].reshape(size, size)


@cache
def psf(size: int, fwhm: float, x: float, y: float) -> np.ndarray:
    """A Moffat profile (beta 3) of total 1 at pixel (x, y), counted from 0."""
    beta = 3.0
    core = fwhm / (2 * math.sqrt(2 ** (1 / beta) - 1))
    rows, columns = np.mgrid[:size, :size]
    profile = (1 + ((columns - x) ** 2 + (rows - y) ** 2) / core**2) ** -beta
    image: np.ndarray = (profile / profile.sum()).astype("f4")
    image.flags.writeable = False  # the cached array is shared
    return image


@cache
def galaxy(size: int, radius: float, axis: float) -> np.ndarray:
    """An exponential disc of total 1, a little off the centre."""
    rows, columns = np.mgrid[:size, :size] - (size - 1) / 2
    disc = np.exp(-np.hypot(columns - 0.8 * radius, (rows + 0.5 * radius) / axis) / radius)
    image: np.ndarray = (disc / disc.sum()).astype("f4")
    return image


class Scene:
    """The surroundings of one object, from which its template and its science images are made.

    Parameters
    ----------
    size
        Width and height of the cutouts in pixels.
    host
        Total flux of the host galaxy.
    depth
        1 sigma of a point source's flux, which determines the noise of a pixel.
    fwhm
        Full width at half maximum of the point-spread function, in pixels.
    offset
        Position of the source within its pixel, (x, y) from -0.5 to 0.5.
    """

    def __init__(
        self,
        seed: int,
        size: int,
        host: float,
        depth: float,
        fwhm: float,
        offset: tuple[float, float],
        rng: np.random.Generator,
    ) -> None:
        self.seed, self.size = seed, size
        self.x, self.y = size // 2 + offset[0], size // 2 + offset[1]
        self.star = psf(size, fwhm, self.x, self.y)
        # Optimal photometry: variance of a flux = variance of a pixel / sum of psf^2.
        self.pixel_noise = np.float32(depth * math.sqrt(float((self.star**2).sum())))
        radius, axis = rng.choice([2.0, 3.0, 4.0]), rng.choice([0.4, 0.7, 1.0])
        self.light = np.float32(host) * galaxy(size, float(radius), float(axis))
        # A template is the mean of many images.
        self.template = self.light + self.pixel_noise / 5 * noise(seed, size, rng)

    def images(self, flux: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Science and difference image with a source of `flux`: science = template + difference."""
        science = self.light + np.float32(flux) * self.star
        science += self.pixel_noise * noise(self.seed, self.size, rng)
        return science, science - self.template


# -- ZTF: one image of 63 x 63 pixels, no coordinates, gzipped

ZTF_SIZE = 63
ZTF_HEADER = block(
    [card("SIMPLE", True), *size_cards((ZTF_SIZE, ZTF_SIZE), -32), card("BUNIT", "DN")]
)


def ztf_fits(image: np.ndarray) -> bytes:
    """A cutout as ZTF sends it, except that SIMPLE is in the right column here."""
    return ZTF_HEADER + data(image)


def gzipped(fits: bytes) -> bytes:
    """A gzip file without a time stamp."""
    return igzip_lib.compress(fits, 1, igzip_lib.COMP_GZIP)


def drop_cutouts(
    fits: dict[str, bytes | None], share: float, rng: np.random.Generator
) -> dict[str, bytes | None]:
    """The same cutouts; with a probability of `share`, one to three of them are None."""
    if rng.random() >= share:
        return fits
    missing = rng.permutation(list(fits))[: rng.integers(1, 4)]
    return {kind: None if kind in missing else image for kind, image in fits.items()}
