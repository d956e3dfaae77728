"""Images: FITS cutouts as arrays, PNG and thumbnails."""

__all__ = [
    "fits",
    "fits_tail",
    "npy",
    "png",
    "stretch",
    "thumbnail",
]
