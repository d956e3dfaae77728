"""Events: the HTTP endpoint of a function, and what sends events to it (source, relay, broker)."""

__all__ = [
    "ALERT_FUNCTIONS",
    "access",
    "alert_age",
    "answer",
    "batching",
    "body_protocol",
    "broker",
    "budget",
    "delivery",
    "envelope",
    "event",
    "event_endpoint",
    "http_protocol",
    "kafka_errors",
    "kafka_gaps",
    "kafka_producer",
    "kafka_topics",
    "notification_relay",
    "oidc",
    "probes",
    "record",
    "s3_events",
    "schema_registry",
    "sending",
    "sink",
    "source",
    "spool",
    "status_server",
    "topic_ids",
    "triggers",
    "worker",
    "workers",
]

ALERT_FUNCTIONS = {"cutouts": "cutouts", "lightcurves": "detections"}
"""The functions that take alerts, and the table that each fills."""
