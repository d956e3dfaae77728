"""The routes of the API: one module for each resource."""

__all__ = [
    "alerts",
    "bulk",
    "cone",
    "cross_match",
    "cutouts",
    "datalink",
    "health",
    "ledger",
    "lightcurves",
    "object_cutouts",
    "packets",
    "proofs",
    "scs",
    "tap",
    "tap_jobs",
    "thumbnails",
]
