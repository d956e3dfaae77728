"""Compares the nights of this store with those of any other archive, alert by alert."""

__all__ = [
    "alert_files",
    "archive_files",
    "compare",
    "id_tables",
    "night_counts",
    "stampede_site",
    "stored_packets",
]
