"""Alerts: from a survey's bytes to Arrow tables of cutouts and detections. No I/O, no clock."""
