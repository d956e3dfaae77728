"""Packs: the images or packets of many alerts in one object."""

__all__ = [
    "alert_versions",
    "images",
    "kinds",
    "night_keys",
    "pack",
    "pack_name",
    "packets",
    "raw_alerts",
    "retention",
    "stored_images",
]
