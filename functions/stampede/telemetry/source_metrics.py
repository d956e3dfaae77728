"""Metrics of the source and of the local broker."""

from prometheus_client import Counter, Gauge

SOURCE_EVENTS = Counter("stampede_source_events_total", "Events delivered", ["outcome"])
SOURCE_RETRIES = Counter(
    "stampede_source_retries_total", "Attempts that did not deliver an event", ["sink", "status"]
)
SOURCE_IN_FLIGHT = Gauge("stampede_source_in_flight_events", "Events taken and not delivered")
SOURCE_IN_FLIGHT_BYTES = Gauge(
    "stampede_source_in_flight_bytes", "Bytes of events taken and not delivered"
)
SOURCE_RECEIVED = Counter(
    "stampede_source_received_bytes_total", "Bytes that Kafka has sent, compressed as they came"
)
SOURCE_LAG = Gauge(
    "stampede_source_lag_events", "Events in Kafka and not delivered", ["family", "partition"]
)
SOURCE_DETACHED = Gauge(
    "stampede_source_detached_partitions",
    "Partitions of which a table lacks what the source has read, because its function was down",
    ["table"],
)
SOURCE_UNREAD_TOPICS = Gauge(
    "stampede_source_unread_topics",
    "Topics of Kafka that are like those that the source reads, and that it does not read",
    ["family"],
)
SOURCE_SILENT_FAMILIES = Gauge(
    "stampede_source_silent_families",
    "1 for a family of topics that has had none for two nights, while another like it has one",
    ["family"],
)
SOURCE_TOPICS_MADE_ANEW = Counter(
    "stampede_source_topics_made_anew_total",
    "Topics that had another id than before, though the same name: made anew, or of another Kafka",
    ["family"],
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
