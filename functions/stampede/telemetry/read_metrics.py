"""Metrics of what `read` and the catalogue give to others."""

from prometheus_client import Counter, Gauge, Histogram

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
