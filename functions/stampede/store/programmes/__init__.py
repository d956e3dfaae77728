"""Observing programmes: which may be stored, and which an object holds."""

__all__ = [
    "keys",
    "rights",
]
