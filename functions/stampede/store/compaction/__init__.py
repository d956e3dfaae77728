"""Merges runs, and deletes what merged runs and programmes leave behind."""

__all__ = [
    "compact",
    "deletion_proof",
    "garbage_collection",
    "packet_merge",
    "packet_plan",
    "purge",
]
