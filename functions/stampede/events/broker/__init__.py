"""Notifications of the store on their way: from S3 to CloudEvents, and to the subscribers."""

__all__ = [
    "broker",
    "notification_relay",
    "triggers",
]
