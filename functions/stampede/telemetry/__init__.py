"""What a process tells of itself: logs, metrics and traces."""

__all__ = [
    "logs",
    "metrics",
    "tracing",
]
