"""The functions: one short module each, what it does with an event, in order."""

ALERT_FUNCTIONS = {"cutouts": "cutouts", "lightcurves": "detections"}
"""The functions that take alerts, and the table each fills."""
