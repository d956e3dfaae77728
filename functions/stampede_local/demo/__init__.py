"""The demo, and the oracle that its alerts are held to."""

__all__ = [
    "demo",
    "oracle",
]
