"""The functions that handle events, and what they share."""

__all__ = [
    "alerts",
    "apps",
    "cutouts",
    "decoding",
    "function_process",
    "lightcurves",
    "merges",
    "moved_points",
    "packet_storer",
    "purge",
    "replicate",
    "server",
]
