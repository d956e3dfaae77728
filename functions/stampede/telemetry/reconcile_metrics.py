"""Metrics of copies, repairs and the state of each site."""

from prometheus_client import Counter, Gauge

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
NOTIFICATIONS_WAITED = Gauge(
    "stampede_notifications_waited_seconds",
    "Time since the last notification that came was sent, as of the last pass of reconcile",
)
NOTIFICATIONS_OFF = Gauge(
    "stampede_notifications_off",
    "1 if the bucket sends no notifications, because none came, as of the last pass; otherwise 0",
)
PROOFS = Counter("stampede_proofs_total", "Proofs of nights that were made", ["survey"])
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
