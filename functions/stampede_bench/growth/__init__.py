"""What grows with a table: look-ups, starts, memory, compaction, up to 10^9 alerts."""

__all__ = [
    "first_answer",
    "lookups",
]
