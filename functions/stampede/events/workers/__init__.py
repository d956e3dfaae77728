"""Batches of events, and the processes that handle them."""

__all__ = [
    "alert_age",
    "batching",
    "pool",
    "spool",
    "worker",
]
