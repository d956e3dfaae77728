"""Dead letters in the store: written, listed, replayed and purged."""

__all__ = [
    "dead_letter",
    "display",
    "merge",
    "purge",
    "reader",
    "replay",
    "stored",
]
