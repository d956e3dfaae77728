"""Packs: the images or packets of many alerts in one object."""

__all__ = [
    "alert_versions",
    "images",
    "kinds",
    "merged_images",
    "merged_inputs",
    "night_keys",
    "pack",
    "pack_name",
    "packets",
    "raw_alerts",
    "retention",
    "stored_images",
]
