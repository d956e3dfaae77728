"""Stampede: every alert of a sky survey, stored; cutouts and light curves, served."""

__all__ = [
    "__version__",
    "errors",
]

__version__ = "0.1.0"
