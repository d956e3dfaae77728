"""From ids and positions to rows, with caches."""

__all__ = [
    "chunks",
    "cone_search",
    "lookup",
    "object_alerts",
    "points",
    "refreshing_table",
    "sky",
    "ttl_cache",
]
