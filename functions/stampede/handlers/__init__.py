"""The functions that handle events, and what they share."""

__all__ = [
    "apps",
    "cutouts",
    "decoding",
    "lightcurves",
    "packets",
    "purge",
    "replicate",
    "server",
]
