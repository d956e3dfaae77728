"""Events: the HTTP endpoint of a function, and what sends events to it (source, relay, broker)."""

__all__ = [
    "access",
    "answer",
    "batching",
    "broker",
    "budget",
    "connections",
    "delivery",
    "event",
    "event_endpoint",
    "http_protocol",
    "notification_relay",
    "oidc",
    "record",
    "s3_events",
    "sending",
    "source",
    "topic_ids",
    "triggers",
    "worker",
    "workers",
]
