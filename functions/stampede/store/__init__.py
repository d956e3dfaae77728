"""The store: immutable packs and tables of sorted runs in an object store."""

__all__ = [
    "bucket_notifications",
    "cache",
    "compaction",
    "conformance",
    "copy",
    "coverage",
    "ledger",
    "memory",
    "objects",
    "open",
    "pack_index_check",
    "packs",
    "raw",
    "replica",
    "run_format",
    "runs",
    "s3",
    "schema",
    "sweep",
    "tables",
]
