"""The functions that handle events, and what they share."""

__all__ = [
    "apps",
    "cutouts",
    "decoding",
    "function_process",
    "lightcurves",
    "packet_storer",
    "purge",
    "replicate",
    "server",
]
