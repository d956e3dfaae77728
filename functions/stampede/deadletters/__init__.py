"""Dead letters in the store: written, listed, replayed and purged."""

__all__ = [
    "dead_letter",
    "display",
    "purge",
    "reader",
    "replay",
    "stored",
]
