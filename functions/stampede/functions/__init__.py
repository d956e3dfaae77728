"""The functions: a module for each, which says what it does with an event."""

__all__ = [
    "ALERT_FUNCTIONS",
    "apps",
    "audit",
    "decoding",
    "findings",
    "reconcile",
    "replicate",
    "server",
]

ALERT_FUNCTIONS = {"cutouts": "cutouts", "lightcurves": "detections"}
"""The functions that take alerts, and the table that each fills."""
