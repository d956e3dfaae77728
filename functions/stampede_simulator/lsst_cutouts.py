"""Rubin's cutouts: FITS files of three HDUs, which are PRIMARY, UNCERT and PSFIMAGE.

Cards, sizes and PSFs are like those of real alerts. The alerts of a visit and detector share two
PSFs: one of science and difference, and one of the template.
"""

from functools import cache, lru_cache

import numpy as np

from stampede_simulator.cutout_images import block, card, data, noise, psf, real, size_cards

FWHM = 3.6  # pixels
# Width and height of a PSF, its FWHM, and the radius beyond which it is 0: pixels.
PSFS = {"science": (41, FWHM, 22.2), "template": (53, 3.0, 23.6)}
WINGS = 1e-5  # 1 sigma of the noise far from the centre; the total is 1
MOST_PSFS = 64  # visits and detectors; a stream is at one or two at a time
WRITTEN = (
    *("CUTMINX", "CUTMINY", "ROTPA", "CRPIX1", "CRPIX2"),
    *("PC1_1", "PC1_2", "PC2_1", "PC2_2", "CRVAL1", "CRVAL2"),
)


@cache
def header(size: int) -> tuple[bytes, tuple[int, ...]]:
    """The primary header for that size, and the offsets of the values of `WRITTEN` in it."""
    increment = "Coordinate increment at reference point"
    matrix = "Coordinate transformation matrix element"
    cards = [
        card("SIMPLE", True, "conforms to FITS standard"),
        *sizes((size, size), -32),
        card("EXTEND", True),
        card("CUTMINX", 0),
        card("CUTMINY", 0),
        card("ROTPA", 0.0, "Pos angle in deg of focal plane +Y wrt North"),
        card("BUNIT", "nJy"),
        card("WCSAXES", 2, "Number of coordinate axes"),
        *(card(f"CRPIX{n}", 0.0, "Pixel coordinate of reference point") for n in (1, 2)),
        *(card(f"PC{i}_{j}", 0.0, matrix) for i in (1, 2) for j in (1, 2)),
        *(card(f"CDELT{n}", 1.0, increment) for n in (1, 2)),
        *(card(f"CRVAL{n}", 0.0, "Coordinate value at reference point") for n in (1, 2)),
        card("LATPOLE", 90.0, "[deg] Native latitude of celestial pole"),
        card("MJDREF", 0.0, "[d] MJD of fiducial time"),
    ]
    written = block(cards)
    return written, tuple(written.index(f"{key:<8}=".encode()) + 10 for key in WRITTEN)


def sizes(shape: tuple[int, int], bitpix: int) -> list[bytes]:
    """The cards of an image's size, with the comments that astropy writes."""
    kind, axes, *rest = size_cards(shape, bitpix)
    return [
        kind.rstrip().ljust(30) + b" / array data type".ljust(50),
        axes.rstrip().ljust(30) + b" / number of array dimensions".ljust(50),
        *rest,
    ]


def extension(name: str, shape: tuple[int, int], bitpix: int, *cards: bytes) -> bytes:
    """The header of an image extension."""
    return block(
        [
            card("XTENSION", "IMAGE", "Image extension"),
            *sizes(shape, bitpix),
            card("PCOUNT", 0, "number of parameters"),
            card("GCOUNT", 1, "number of groups"),
            *cards,
            card("EXTNAME", name, "extension name"),
        ]
    )


@cache
def uncertainty(size: int) -> bytes:
    """The header of UNCERT."""
    return extension("UNCERT", (size, size), -32, card("UTYPE", "VarianceUncertainty"))


@cache
def profile(kind: str) -> np.ndarray:
    """A PSF, float32; it is 0 near the corners, as in real files."""
    size, fwhm, radius = PSFS[kind]
    middle = (size - 1) / 2
    smooth = psf(size, fwhm, middle + 0.03, middle - 0.07)
    rows, columns = np.mgrid[:size, :size] - middle
    return np.where(np.hypot(rows, columns) < radius, smooth, 0)


@lru_cache(MOST_PSFS)
def psf_images(seed: int, visit: int, detector: int) -> dict[str, bytes]:
    """PSFIMAGE, header and data, of each kind of cutout, with the noise of a PSF's model.

    In real files too, the science PSF is of 32 bits, written as 64.
    """
    rng = np.random.default_rng([seed, visit, detector])
    made = {}
    for kind, width in (("science", "f4"), ("template", "f8")):
        ideal = profile(kind)
        size = len(ideal)
        model = ideal * (1 + 0.02 * noise(seed, size, rng).astype("f8"))
        model += WINGS * (ideal > 0) * noise(seed, size, rng)
        model = (model / model.sum()).astype(width).astype("f8")
        made[kind] = extension("PSFIMAGE", model.shape, -64) + data(model)
    return made | {"difference": made["science"]}


def fits(
    image: np.ndarray,
    variance: np.ndarray,
    psf_image: bytes,
    corner: tuple[int, int],
    angle: float,
    written: tuple[float, ...],
) -> bytes:
    """A cutout as Rubin sends it.

    Parameters
    ----------
    psf_image
        The last HDU, of `psf_images`.
    corner
        Column and row of the detector's pixel at the lower left.
    angle
        Position angle of the detector's y axis, degrees.
    written
        CRPIX1 and CRPIX2 (pixels, counted from 1); PC1_1, PC1_2, PC2_1, PC2_2 (degrees per pixel);
        CRVAL1 and CRVAL2 (degrees).
    """
    cards, starts = header(len(image))
    filled = bytearray(cards)
    values = (*(f"{number:>20}" for number in corner), real(angle), *map(real, written))
    for start, value in zip(starts, values, strict=True):
        filled[start : start + 20] = value.encode()
    return b"".join((filled, data(image), uncertainty(len(image)), data(variance), psf_image))
