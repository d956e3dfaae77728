"""Kafka: consumers and producers, offsets, topics, rebalances, gaps."""

__all__ = [
    "direct_input",
    "errors",
    "gaps",
    "login",
    "producer",
    "schema_registry",
    "source",
    "topics",
]
