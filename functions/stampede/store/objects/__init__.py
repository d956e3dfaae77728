"""The object store as an interface, in memory and in a folder."""

__all__ = [
    "address",
    "filesystem",
    "lru_cache",
    "memory",
    "object_store",
    "probes",
    "query_jobs",
    "store_clock",
]
