"""Metrics of compaction, the listing of runs, and dead letters."""

from prometheus_client import Counter, Gauge

COMPACT_PASSES = Counter("stampede_compact_passes_total", "Passes over all tables", ["outcome"])
COMPACTED_BYTES = Counter("stampede_compacted_bytes_total", "Bytes rewritten", ["table"])
COMPACTED_NEW_BYTES = Counter(
    "stampede_compacted_new_bytes_total",
    "Bytes merged for the first time; rewritten bytes over these: the cost of storing a byte",
    ["table"],
)
MERGED_BYTES = Counter(
    "stampede_merged_pack_bytes_total",
    "Bytes of packs and raw alerts that were merged, and of the objects made of them",
    ["kind", "direction"],
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
DEAD_LETTERS = Gauge(
    "stampede_dead_letters",
    "Offsets of dead letters, as of the last compaction: refused ones, and those accepted as "
    "rightly refused, whose bytes may be purged",
    ["table", "state"],
)
