"""The functions that handle events, and what they share."""

__all__ = [
    "ALERT_FUNCTIONS",
    "alert_check",
    "apps",
    "audit",
    "decoding",
    "deep_audit",
    "findings",
    "kafka_sender",
    "packets",
    "reconcile",
    "replay",
    "replicate",
    "restore",
    "scrub",
    "server",
]

ALERT_FUNCTIONS = {"cutouts": "cutouts", "lightcurves": "detections"}
"""The functions that take alerts, and the table that each fills."""
