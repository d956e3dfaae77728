"""`stampede doctor`: what is wrong with an installation, and what mends it."""

__all__ = [
    "examination",
    "finding",
    "stores",
]
