"""Metrics of what a function does with events and batches."""

from collections.abc import Mapping

from prometheus_client import Counter, Gauge, Histogram

EVENTS = Counter("stampede_events_total", "Events answered", ["function", "outcome"])
EVENT_SECONDS = Histogram(
    "stampede_event_seconds",
    "From the first byte of an event to its answer",
    ["function"],
    buckets=(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
ALERT_AGE = Histogram(
    "stampede_alert_age_seconds",
    "From when a survey sent an alert (header producer_timestamp), else from its Kafka timestamp, "
    "until the function has stored it; a dead letter, or an alert without either, does not count",
    ["function"],
    buckets=(0.5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600, 1800, 3600, 6 * 3600, 86400),
)
FLUSHES = Counter("stampede_flushes_total", "Batches stored", ["function"])
FLUSH_SECONDS = Counter(
    "stampede_flush_stage_seconds_total",
    "Seconds in each stage of storing a batch",
    ["function", "stage"],
)
FLUSH_ALERTS = Counter("stampede_flush_alerts_total", "Alerts in stored batches", ["function"])
FLUSH_BYTES = Counter("stampede_flush_stored_bytes_total", "Bytes put into the store", ["function"])
PANELS = Counter(
    "stampede_thumbnail_panels_total", "Cutouts drawn: image, absent or damaged", ["outcome"]
)
HELD_BYTES = Gauge(
    "stampede_held_bytes", "Bytes of requests that are read or handled", ["function"]
)
CLIENTS_DROPPED = Counter(
    "stampede_clients_dropped_total",
    "Connections closed because their client held them: header, body, answer or pipeline",
    ["part"],
)
WORKER_DEATHS = Counter(
    "stampede_worker_deaths_total", "Worker processes lost to a batch", ["function"]
)
NOTIFICATIONS_DROPPED = Counter(
    "stampede_notifications_dropped_total", "Events of stored objects that the Broker refused"
)


def count_flush(
    function: str, alerts: int, stored_bytes: int, seconds: Mapping[str, float]
) -> None:
    """Count a stored batch; `seconds` by stage."""
    FLUSHES.labels(function).inc()
    FLUSH_ALERTS.labels(function).inc(alerts)
    FLUSH_BYTES.labels(function).inc(stored_bytes)
    for stage, spent in seconds.items():
        FLUSH_SECONDS.labels(function, stage).inc(spent)
