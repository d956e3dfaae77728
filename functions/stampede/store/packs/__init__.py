"""Packs: the images or packets of many alerts in one object."""

__all__ = [
    "alert_versions",
    "images",
    "kinds",
    "nights",
    "pack",
    "packets",
    "raw_alerts",
    "retention",
]
