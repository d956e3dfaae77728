"""Alerts: from a survey's bytes to Arrow tables of cutouts and detections.

No HTTP, no files, no clock and no randomness: `stampede.handlers.decoding` hands them in.
"""

__all__ = [
    "arrays",
    "batch_decoder",
    "batch_parts",
    "bounds",
    "columns",
    "container",
    "decoder",
    "framing",
    "healpix",
    "image_tokens",
    "isolation",
    "moving",
    "packets",
    "positions",
    "readable",
    "recognition",
    "schema_groups",
    "schemas",
]
