"""Stampede's Prometheus metrics: each has a unit and few labels, and no label is an id."""

from collections.abc import Mapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, Counter, Gauge, Histogram, generate_latest
from starlette.responses import Response

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
COMPACT_PASSES = Counter("stampede_compact_passes_total", "Passes over all tables", ["outcome"])
COMPACTED_BYTES = Counter("stampede_compacted_bytes_total", "Bytes rewritten", ["table"])
COMPACTED_NEW_BYTES = Counter(
    "stampede_compacted_new_bytes_total",
    "Bytes merged for the first time; rewritten bytes over these: the cost of storing a byte",
    ["table"],
)
RUNS = Gauge("stampede_runs", "Live runs, as of the last compaction", ["table", "level"])
RUN_BYTES = Gauge(
    "stampede_run_bytes", "Bytes of live runs, as of the last compaction", ["table", "level"]
)
QUARANTINED_OBJECTS = Gauge(
    "stampede_quarantined_objects",
    "Objects named like a run that this process cannot read or verify, and leaves out",
    ["table"],
)
DAMAGED_PARTS = Gauge(
    "stampede_damaged_parts",
    "Parts of runs that the last compaction found lost or damaged",
    ["table"],
)

SOURCE_EVENTS = Counter("stampede_source_events_total", "Events delivered", ["outcome"])
SOURCE_RETRIES = Counter(
    "stampede_source_retries_total", "Attempts that did not deliver an event", ["sink", "status"]
)
SOURCE_IN_FLIGHT = Gauge("stampede_source_in_flight_events", "Events taken and not delivered")
SOURCE_IN_FLIGHT_BYTES = Gauge(
    "stampede_source_in_flight_bytes", "Bytes of events taken and not delivered"
)
SOURCE_LAG = Gauge(
    "stampede_source_lag_events", "Events in Kafka and not delivered", ["topic", "partition"]
)
SOURCE_READY = Gauge(
    "stampede_source_ready",
    "1 while the source is in its consumer group and connected to the brokers of its partitions",
)
SOURCE_LAST_POLL = Gauge(
    "stampede_source_last_poll_seconds", "Time since the Kafka client was last asked for events"
)
SOURCE_STUCK = Gauge(
    "stampede_source_stuck_events",
    "Events refused by the only sink left for them, retried for ever",
    ["sink"],
)

BROKER_EVENTS = Counter(
    "stampede_broker_events_total", "Outcomes of events, by Trigger", ["trigger", "outcome"]
)

NOTIFICATIONS_DROPPED = Counter(
    "stampede_notifications_dropped_total", "Events of stored objects that the Broker refused"
)

REPLICATED_OBJECTS = Counter("stampede_replicated_objects_total", "Objects copied and verified")
REPLICATED_BYTES = Counter("stampede_replicated_bytes_total", "Bytes copied and verified")
RECONCILE_FOUND = Gauge(
    "stampede_reconcile_found_objects", "Objects to repair that the last pass found", ["what"]
)
RECONCILE_REPAIRED = Counter("stampede_reconcile_repaired_objects_total", "Repaired", ["what"])
CLOCK_DIFFERENCE = Gauge(
    "stampede_clock_difference_seconds",
    "Seconds that the clock of a store is ahead of this process's, as of the last retention",
    ["site"],
)
CERTIFICATE_EXPIRES = Gauge(
    "stampede_certificate_expires_timestamp_seconds",
    "When the certificate of a store expires, as of the last pass of reconcile",
    ["site"],
)
BUCKET_BYTES = Gauge(
    "stampede_bucket_bytes",
    "Bytes in the bucket of a store, as Ceph counts them, as of the last pass of reconcile",
    ["site"],
)
QUOTA_USED = Gauge(
    "stampede_quota_used_ratio",
    "Part of a quota of Ceph that is used, as of the last pass of reconcile: of the bucket or of "
    "its owner, in size or in objects; absent without a quota",
    ["site", "scope", "unit"],
)
RECONCILE_PASSES = Counter("stampede_reconcile_passes_total", "Passes", ["outcome"])
RECONCILE_LISTED = Gauge(
    "stampede_reconcile_listed_keys",
    "Keys and folders of all sites that the last pass listed, some in several steps",
)
RECONCILE_ROUND_AGE = Gauge(
    "stampede_reconcile_round_age_seconds",
    "Time since the last whole round over all nights began, as of the last pass; "
    "0 if each pass looks at all nights",
)

SCRUB_PASSES = Counter("stampede_scrub_passes_total", "Passes over all sites", ["outcome"])
SCRUBBED_OBJECTS = Counter("stampede_scrubbed_objects_total", "Objects read to verify", ["site"])
SCRUBBED_BYTES = Counter("stampede_scrubbed_bytes_total", "Bytes read to verify", ["site"])
SCRUB_FOUND = Counter(
    "stampede_scrub_found_objects_total", "Objects found damaged or lost by reading", ["site"]
)
SCRUB_MENDED = Counter(
    "stampede_scrub_mended_objects_total",
    "Objects restored from the other site, or drawn again",
    ["site"],
)
SCRUB_ORPHANS = Counter(
    "stampede_scrub_orphan_packs_total",
    "Packs whose rows readers get from other packs: found in each round, and deleted",
    ["site", "outcome"],
)
SCRUB_ORPHAN_BYTES = Counter(
    "stampede_scrub_orphan_bytes_total", "Bytes of these packs", ["site", "outcome"]
)
SCRUB_DAMAGED = Gauge(
    "stampede_scrub_damaged_objects",
    "Objects that are damaged or lost as of the last pass",
    ["site"],
)
SCRUB_ROUND_AGE = Gauge(
    "stampede_scrub_round_age_seconds",
    "Time since every object was read, as of the last pass; at first since the first pass",
    ["site"],
)
SCRUB_INTERVAL = Gauge(
    "stampede_scrub_interval_seconds", "From the beginning of one whole round to the next"
)

PUBLISH_PASSES = Counter(
    "stampede_publish_passes_total", "Times that the catalogue was brought up to date", ["outcome"]
)
PUBLISHED_OBJECTS = Gauge("stampede_published_objects", "Objects in the catalogue, as of the last")

READ_SECONDS = Histogram(
    "stampede_read_seconds",
    "From a read request to the end of its answer",
    ["route", "status"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5, 60, 600, 3600),
)
READ_VIEW_AGE = Histogram(
    "stampede_read_view_age_seconds",
    "Age of the listing of the store that an answer was made from: what was stored before it is "
    "readable. With stampede_alert_age_seconds it gives the age of alerts until they are readable",
    ["table"],
    buckets=(0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 10, 30, 60, 300),
)
DAMAGED_IMAGES = Counter(
    "stampede_damaged_images_total", "Images and packets that `read` found missing or damaged"
)
READ_BYTES = Counter("stampede_read_bytes_total", "Bytes sent to readers", ["route"])


def count_flush(
    function: str, alerts: int, stored_bytes: int, seconds: Mapping[str, float]
) -> None:
    """Count a stored batch; `seconds` by stage."""
    FLUSHES.labels(function).inc()
    FLUSH_ALERTS.labels(function).inc(alerts)
    FLUSH_BYTES.labels(function).inc(stored_bytes)
    for stage, spent in seconds.items():
        FLUSH_SECONDS.labels(function, stage).inc(spent)


async def endpoint(_: Any) -> Response:
    """Serve `/metrics`."""
    return Response(generate_latest(), media_type=CONTENT_TYPE_LATEST)
