"""Every setting, in one typed object that is made once and passed down.

Each is an environment variable with the prefix ``STAMPEDE_``, for example
``STAMPEDE_STORE=http://127.0.0.1:8400/stampede``; `K_SINK` keeps Knative's own name.
"""

from pathlib import Path

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

MIB = 1 << 20


class Settings(BaseSettings):
    """The settings of all functions; a function reads those it needs."""

    model_config = SettingsConfigDict(
        env_prefix="STAMPEDE_", extra="ignore", validate_by_name=True, validate_by_alias=True
    )

    # -- the store
    store: str = Field(
        "http://127.0.0.1:8400/stampede",
        description="where everything is kept: http(s)://HOST:PORT/BUCKET for an S3 endpoint, "
        "or file:///DIRECTORY",
    )
    access_key: str = Field(
        "", validation_alias=AliasChoices("STAMPEDE_ACCESS_KEY", "AWS_ACCESS_KEY_ID")
    )
    secret_key: SecretStr = Field(
        SecretStr(""), validation_alias=AliasChoices("STAMPEDE_SECRET_KEY", "AWS_SECRET_ACCESS_KEY")
    )
    region: str = "us-east-1"
    ca_file: Path | None = Field(None, description="certificate authority of the S3 endpoint")

    # -- the second site
    replica: str = Field("", description="a store like the first, to which everything is copied")
    replica_access_key: str = ""
    replica_secret_key: SecretStr = SecretStr("")

    # -- alerts
    schema_registry: str | None = Field(
        None, description="Confluent schema registry asked for schema ids that are not built in"
    )
    max_alert_bytes: int = Field(16 * MIB, description="a larger alert gets 413")
    future_days: float = Field(1.0, description="an alert from further in the future gets 422")

    # -- the door of a function: how alerts are gathered into one flush
    host: str = "127.0.0.1"
    port: int = 8080
    socket: int | None = Field(
        None, description="file descriptor of a socket that listens already, in place of a port"
    )
    batch_alerts: int = Field(1000, description="most alerts in one flush")
    batch_bytes: int = Field(64 * MIB, description="most bytes of alerts in one flush")
    linger_ms: int = Field(50, description="how long a flush waits for company")
    queue_bytes: int = Field(256 * MIB, description="bytes held before the door answers 429")
    workers: int = Field(1, description="worker processes: flushes under way at once")
    decode_seconds: float = Field(
        3.0, description="CPU time that decoding a batch may take, and more for a large one"
    )
    flush_seconds: float = Field(120.0, description="a flush may take so long, the store included")
    worker_memory: int = Field(2048 * MIB, description="bytes a worker may allocate")
    spool: Path = Field(
        Path("/dev/shm"), description="memory-backed directory between door and workers"
    )

    # -- the source
    sink: str = Field("", validation_alias=AliasChoices("K_SINK", "STAMPEDE_SINK"))
    dead_letter_sink: str = Field(
        "", description="where refused events go; without one they are tried for ever"
    )
    ce_overrides: str = Field(
        "",
        validation_alias=AliasChoices("K_CE_OVERRIDES", "STAMPEDE_CE_OVERRIDES"),
        description='JSON, `{"extensions": {NAME: VALUE}}` set on every event',
    )
    kafka: str = Field("127.0.0.1:9092", description="bootstrap servers")
    topics: str = Field("", description="comma-separated topics")
    group: str = "stampede"
    namespace: str = Field("default", description="namespace in the events' source attribute")
    source_name: str = Field("stampede", description="name in the events' source attribute")
    kafka_options: dict[str, str] = Field(
        default_factory=dict,
        description="any librdkafka setting as JSON: TLS, SASL, fetch sizes",
    )
    in_flight: int = Field(
        # Not more: with 1,000 the connections cost CPU, 3.0 ms an alert in all processes, not 2.2
        # (`stampede bench ingest`). Not less: packs would be small.
        300,
        description="most events sent and not yet answered",
    )
    in_flight_bytes: int = Field(256 * MIB, description="most bytes of those events")
    retries: int = Field(10, description="tries after the first, then the dead letters")
    backoff_seconds: float = Field(0.2, description="first pause, doubled at every try")

    # -- notifications from the store, and where their events go
    notifications: str = Field(
        "", description="URL that the S3 endpoint tells of what was stored: the relay's"
    )
    sink_token: Path = Field(
        Path("/oidc/token"),
        description="file with the token that a Broker may ask for; Knative mounts it with K_SINK",
    )
    hold_seconds: float = Field(
        5.0, description="how long the relay waits for a Broker that is down before it says 503"
    )
    triggers: Path = Field(
        Path(__file__).with_name("events") / "triggers.yaml",
        description="YAML file of the Triggers by which the local broker routes",
    )
    subscribers: dict[str, str] = Field(
        default_factory=dict,
        description='URLs of the subscribers there are, as JSON: {"stampede-thumbnails": URL}',
    )

    # -- compaction
    fanout: int = Field(8, description="runs of one level merged into one of the next")
    run_rows: int = Field(4_000_000, description="a larger merged run is cut by key range")
    grace_seconds: float = Field(
        300.0, description="how long inputs of a merge stay for readers under way"
    )
    cutout_days: int | None = Field(
        None, ge=0, description="days after their night that cutouts are kept; none: for ever"
    )

    # -- who works with a system from outside: `audit`, `ingest`, `simulate`, `deadletters`
    functions: dict[str, str] = Field(
        default_factory=dict,
        description='URLs of the functions, as JSON, where no `stampede up` runs: {"cutouts": URL, '
        '"lightcurves": URL, "deadletters": URL}',
    )

    # -- the second site, and repairing
    replica_region: str = "us-east-1"
    replica_ca_file: Path | None = Field(
        None, description="certificate authority of the second site's S3 endpoint"
    )
    copies: int = Field(
        # Most of a copy is waiting for a site that is far: `stampede bench replicate`.
        32,
        ge=1,
        description="copies under way at once",
    )
    copy_bytes: int = Field(128 * MIB, description="bytes that they hold, all together")
    reconcile: str = Field(
        "packs,thumbnails,replica,retention,leftovers",
        description="what reconcile looks after, comma-separated",
    )
    reconcile_days: float = Field(
        2.0, description="packs stored in so many days are looked into at each pass"
    )

    # -- reading
    cache_bytes: int = Field(256 * MIB, description="index blocks kept in memory by `read`")
    refresh_seconds: float = Field(2.0, description="a listing of runs that is older is renewed")
    bulk_ids: int = Field(1_000_000, description="most ids in one large query")
    bulk_url: str = Field("", description="whom to ask of more ids, where that is another function")
    bulk_queries: int = Field(16, description="large queries under way at once; then 429")
