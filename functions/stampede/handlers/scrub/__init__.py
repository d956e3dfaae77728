"""scrub: reads each object in turn, and repairs what is damaged."""

__all__ = [
    "deep_audit",
    "handler",
    "scrubber",
]
