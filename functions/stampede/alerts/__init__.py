"""Alerts: from a survey's bytes to Arrow tables of cutouts and detections. No I/O, no clock."""

__all__ = [
    "batch_decoder",
    "columns",
    "container",
    "decoder",
    "framing",
    "groups",
    "image_tokens",
    "schemas",
]
