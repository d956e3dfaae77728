"""Merges runs, and deletes what merged runs and programmes leave behind."""

__all__ = [
    "compact",
    "deletion_proof",
    "garbage_collection",
    "image_merge",
    "merge_state",
    "night_plan",
    "packet_merge",
    "packet_plan",
    "purge",
    "raw_merge",
]
