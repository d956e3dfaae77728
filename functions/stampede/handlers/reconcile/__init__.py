"""reconcile: finds what the two sites or the tables lack, repairs it, and deletes what is old."""

__all__ = [
    "certificates",
    "checkpoints",
    "findings",
    "notification_guard",
    "reconciler",
    "repair",
]
