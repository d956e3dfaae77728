"""The store: immutable packs and tables of sorted runs in an object store."""

__all__ = [
    "conformance",
    "open",
    "step_times",
    "store_checks",
]
