"""Images: FITS cutouts as arrays and as pictures."""

__all__ = [
    "fits",
    "npy",
    "png",
    "stretch",
    "thumbnail",
]
