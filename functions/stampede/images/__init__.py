"""Images: FITS cutouts as arrays, PNG and thumbnails."""

__all__ = [
    "animation",
    "fits",
    "fits_tail",
    "hdu",
    "joined_file",
    "npy",
    "orientation",
    "png",
    "stretch",
    "thumbnail",
    "tiles",
]
