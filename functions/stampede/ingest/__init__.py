"""Alerts from disk, sent as if they came from Kafka; tables in files of others."""

__all__ = [
    "files",
    "identity",
    "records",
    "send",
    "tables",
    "tally",
]
