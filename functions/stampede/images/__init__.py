"""Images: FITS cutouts as arrays, PNG and thumbnails."""

__all__ = [
    "animation",
    "fits",
    "fits_tail",
    "hdu",
    "npy",
    "orientation",
    "png",
    "stretch",
    "thumbnail",
    "tiles",
]
