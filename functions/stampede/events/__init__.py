"""Events: the HTTP endpoint of a function, and what sends events to it (source, relay, broker)."""

__all__ = [
    "ALERT_FUNCTIONS",
]

ALERT_FUNCTIONS = {"cutouts": "cutouts", "lightcurves": "detections"}
"""The functions that take alerts, and the table that each fills."""
