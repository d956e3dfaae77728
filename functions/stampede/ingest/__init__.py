"""Alerts from disk, sent as if they came from Kafka."""

__all__ = [
    "files",
    "identity",
    "records",
    "send",
    "tally",
]
