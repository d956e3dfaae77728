"""Metrics of `scrub`."""

from prometheus_client import Counter, Gauge

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
