"""The CloudEvent: what it is, and what a Kafka record or an S3 notification becomes."""

__all__ = [
    "attributes",
    "envelope",
    "event",
    "json_body",
    "kafka_record",
    "record_bytes",
    "s3_events",
    "structured",
]
