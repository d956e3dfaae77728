"""publish: all objects with their light curves as a HATS catalogue."""

__all__ = [
    "catalogue",
]
