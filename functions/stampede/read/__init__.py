"""The read service: cutouts and light curves over HTTP."""

__all__ = [
    "app",
]
