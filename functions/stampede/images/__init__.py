"""Images: FITS cutouts as arrays, PNG and thumbnails."""

__all__ = [
    "fits",
    "npy",
    "png",
    "stretch",
    "thumbnail",
]
