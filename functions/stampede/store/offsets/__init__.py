"""Which Kafka offsets something holds: offset coverage."""

__all__ = [
    "coverage",
    "intervals",
]
