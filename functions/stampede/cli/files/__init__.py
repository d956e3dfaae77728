"""Files of `stampede get`: positions that it reads, images of alerts that it writes."""

__all__ = [
    "cutout_files",
    "positions",
]
