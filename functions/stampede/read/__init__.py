"""The read service: cutouts and light curves over HTTP."""

__all__ = [
    "app",
    "cone_search",
    "cone_writers",
    "images",
    "ledger_cache",
    "lookup",
    "packets",
    "refreshing_table",
    "sky",
    "tokens",
]
