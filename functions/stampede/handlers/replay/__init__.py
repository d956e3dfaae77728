"""Alerts of a night as they were sent, for Kafka or a file."""

__all__ = [
    "kafka_sender",
    "messages",
    "night",
]
