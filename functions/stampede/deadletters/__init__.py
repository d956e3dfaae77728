"""Dead letters in the store: written, listed, replayed, accepted and purged."""

__all__ = [
    "accept",
    "dead_letter",
    "display",
    "merge",
    "purge",
    "reader",
    "replay",
    "stored",
]
