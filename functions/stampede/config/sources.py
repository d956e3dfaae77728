"""Where events come from and where they go."""

from pathlib import Path

from pydantic import AliasChoices, Field, field_validator
from pydantic_settings import BaseSettings

from stampede.config.topics import Topics

MIB = 1 << 20


class KafkaSettings(BaseSettings):
    """Settings: Kafka."""

    kafka: str = Field("127.0.0.1:9092", description="bootstrap servers")
    topics: str = Field(
        "",
        description="comma-separated topics, or families as ztf_{YYYYMMDD}_programid1 (the nights "
        "of a week; of ten days with {YYYYMMDD:10}) and lsst-alerts-v{n} (the two newest); those "
        "behind a ! are known and not read. `read` asks Kafka about them, to tell in its ledger "
        "what is in flight from what is missing",
    )
    other_topics: str = Field(
        "", description="topics and families that other sources read: nobody is warned of those"
    )

    @field_validator("topics", "other_topics")
    @classmethod
    def check_topics(cls, text: str) -> str:
        """The text, if it names topics."""
        Topics.parse(text)
        return text

    group: str = "stampede"
    group_instance_id: str = Field(
        "",
        description="name of this source in its group, another one for each: Kafka keeps its "
        "partitions for it while it restarts (static membership)",
    )
    source_replicas: int = Field(
        1, ge=1, description="sources in each group; `stampede doctor` compares with the partitions"
    )
    topic_epoch: str = Field(
        "",
        description="what senders that cannot ask Kafka for topic ids send as `topicid` instead",
    )
    kafka_options: dict[str, str] = Field(
        default_factory=dict,
        description="any librdkafka setting as JSON: TLS, SASL, fetch sizes",
    )
    kafka_keys: str = Field(
        "",
        description="directory with the files `user`, `password` and `type` (the SASL mechanism), "
        "each unless STAMPEDE_KAFKA_OPTIONS has sasl.username, sasl.password or sasl.mechanism; a "
        "source reads them again",
    )


class SourceSettings(BaseSettings):
    """Settings: the source."""

    sink: str = Field("", validation_alias=AliasChoices("K_SINK", "STAMPEDE_SINK"))
    sinks: dict[str, str] = Field(
        default_factory=dict,
        description='a sink for each table in place of the one, as JSON: {"cutouts": URL, '
        '"detections": URL}; each alert is fetched once for all',
    )
    detach_seconds: float = Field(
        30.0,
        gt=0,
        description="with several sinks: one that accepts nothing for so long, while all others "
        "wait for it, is left behind, and catches up later",
    )
    dead_letter_sink: str = Field(
        "",
        description="URL for refused events; without it they are retried for ever. With `sinks`, "
        "and from `alerts`, those of a table go to /TABLE of it",
    )
    ce_overrides: str = Field(
        "",
        validation_alias=AliasChoices("K_CE_OVERRIDES", "STAMPEDE_CE_OVERRIDES"),
        description='JSON, `{"extensions": {NAME: VALUE}}` set on every event',
    )
    namespace: str = Field("default", description="namespace in the events' source attribute")
    source_name: str = Field("stampede", description="name in the events' source attribute")
    in_flight: int = Field(
        # With 1,000 the connections cost CPU: 3.0 ms an alert in all processes, not 2.2
        # (`stampede bench ingest`). With fewer than 300, packs are small.
        300,
        description="most events that are sent and not yet answered; 1,200 if a function reads "
        "Kafka, and at most half of them are one batch",
    )
    in_flight_bytes: int = Field(
        256 * MIB,
        description="most bytes of those events; two batches if a function reads Kafka",
    )
    retries: int = Field(10, description="retries of an event before it becomes a dead letter")
    give_up_seconds: float = Field(
        300.0,
        gt=0,
        description="an event that fails for so long, with any answer but 429, while nearly all "
        "others are accepted becomes a dead letter",
    )
    backoff_seconds: float = Field(0.2, description="first pause before a retry, doubled each time")


class NotificationSettings(BaseSettings):
    """Settings: notifications of the store, and their events."""

    notifications: str = Field(
        "", description="URL of the relay, to which the S3 endpoint posts its notifications"
    )
    installation: str = Field(
        "",
        pattern=r"^([a-z0-9][a-z0-9-]{0,126})?$",
        description="name of this installation, if several share a bucket: part of the names of "
        "its topic and notifications, so that none takes away another's",
    )
    sink_token: Path = Field(
        Path("/oidc/token"),
        description="file with the token that a Broker may require; Knative mounts it with K_SINK",
    )
    hold_seconds: float = Field(
        5.0, description="how long the relay waits for a Broker that is down before it answers 503"
    )
    triggers: Path = Field(
        Path(__file__).parents[1] / "events" / "broker" / "triggers.yaml",
        description="YAML file of the Triggers by which the local broker routes",
    )
    subscribers: dict[str, str] = Field(
        default_factory=dict,
        description='URLs of the subscribers, as JSON: {"stampede-thumbnails": URL}',
    )
