"""Tables: the runs that are live, their checkpoints, and look-ups in them."""

__all__ = [
    "checkpoint",
    "checkpoint_files",
    "listing",
    "offset_files",
    "prefix_lookup",
    "range_lookup",
    "table",
]
