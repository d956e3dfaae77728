"""Files of commands: light curves and positions that they read, images that they write."""

__all__ = [
    "cutout_files",
    "light_curves",
    "positions",
]
