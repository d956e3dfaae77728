"""What a process tells of itself: logs, metrics and traces.

A metric has a unit and few labels, and no label is an id. A process has those that it imports.
"""

__all__ = [
    "check_metrics",
    "event_metrics",
    "histories_metrics",
    "kafka_log",
    "logs",
    "metrics_endpoint",
    "read_metrics",
    "reconcile_metrics",
    "scrub_metrics",
    "source_metrics",
    "store_metrics",
    "tracing",
]
