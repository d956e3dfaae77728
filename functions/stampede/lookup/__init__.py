"""From ids and positions to rows, images and packets of the store, with caches."""

__all__ = [
    "alert_fields",
    "as_of",
    "cone_search",
    "errors",
    "histories_summary",
    "ledger_cache",
    "light_curves",
    "lookup",
    "object_alerts",
    "packet_points",
    "points",
    "refreshing_table",
    "response_warnings",
    "sky",
    "stored_records",
    "ttl_cache",
]
