"""From Kafka to the store: rates, CPU time, requests; an outage, a second site, a night again."""

__all__ = [
    "cost",
    "decode",
    "ingest",
]
