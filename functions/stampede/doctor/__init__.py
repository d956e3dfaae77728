"""`stampede doctor`: what is wrong with an installation, and what repairs it."""

__all__ = [
    "checks",
    "finding",
    "stores",
]
