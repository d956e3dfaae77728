"""The pages for people."""

__all__ = [
    "alert",
    "api_docs",
    "cone",
    "front_page",
    "ledger",
    "nights",
    "object",
    "object_choices",
    "page",
    "search",
]
