"""The pages for people."""

__all__ = [
    "alert",
    "api_docs",
    "cone",
    "front_page",
    "ledger_page",
    "moving",
    "nights",
    "object",
    "object_choices",
    "page",
    "proofs",
    "search",
]
