"""Events: the CloudEvent door of a function, and the source that knocks at it."""

__all__ = [
    "batching",
    "broker",
    "delivery",
    "event",
    "event_endpoint",
    "notification_relay",
    "oidc",
    "record",
    "s3_events",
    "sending",
    "source",
    "triggers",
    "worker",
    "workers",
]
