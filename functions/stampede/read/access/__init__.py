"""Who may ask, and how often."""

__all__ = [
    "access",
    "bearer_tokens",
]
