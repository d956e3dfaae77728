"""Stampede on one machine: a local Kafka, a local Ceph, and all functions as processes."""

__all__ = [
    "ceph",
    "environment",
    "installer",
    "kafka",
    "plan",
    "ports",
    "process",
    "supervisor",
    "system",
    "tls",
    "up",
]
