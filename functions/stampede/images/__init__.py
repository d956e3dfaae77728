"""Images: FITS cutouts as arrays, PNG and thumbnails."""

__all__ = [
    "fits",
    "fits_tail",
    "hdu",
    "npy",
    "orientation",
    "png",
    "stretch",
    "strip",
    "thumbnail",
    "tiles",
]
