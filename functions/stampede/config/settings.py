"""Every setting, in one typed object that is made once and passed down.

Each is an environment variable with the prefix ``STAMPEDE_``, for example
``STAMPEDE_STORE=http://127.0.0.1:8400/stampede``; `K_SINK` keeps Knative's own name.
"""

from pathlib import Path

from pydantic import AliasChoices, Field, SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

MIB = 1 << 20


class Settings(BaseSettings):
    """The settings of all functions and commands; each reads those it needs."""

    model_config = SettingsConfigDict(
        env_prefix="STAMPEDE_", extra="ignore", validate_by_name=True, validate_by_alias=True
    )

    # -- the store
    store: str = Field(
        "http://127.0.0.1:8400/stampede",
        description="where everything is stored: http(s)://HOST:PORT/BUCKET for an S3 endpoint, "
        "or file:///DIRECTORY",
    )
    access_key: str = Field(
        "", validation_alias=AliasChoices("STAMPEDE_ACCESS_KEY", "AWS_ACCESS_KEY_ID")
    )
    secret_key: SecretStr = Field(
        SecretStr(""), validation_alias=AliasChoices("STAMPEDE_SECRET_KEY", "AWS_SECRET_ACCESS_KEY")
    )
    keys: str = Field(
        "",
        description="directory with the files `access-key` and `secret-key`, in place of "
        "STAMPEDE_ACCESS_KEY and STAMPEDE_SECRET_KEY; read again when the store refuses the keys",
    )
    region: str = "us-east-1"
    ca_file: Path | None = Field(None, description="certificate authority of the S3 endpoint")

    # -- the second site
    replica: str = Field(
        "", description="a store like STAMPEDE_STORE, to which everything is copied"
    )
    replica_access_key: str = ""
    replica_secret_key: SecretStr = SecretStr("")
    replica_keys: str = Field("", description="directory like STAMPEDE_KEYS")

    # -- alerts
    schema_registry: str | None = Field(
        None, description="URL of a Confluent schema registry, for schema ids that are not built in"
    )
    max_alert_bytes: int = Field(16 * MIB, description="a function answers 413 to a larger alert")
    future_days: float = Field(
        1.0,
        description="a function answers 422 to an alert from further in the future, by the "
        "store's clock",
    )

    ztf_programids: str = Field(
        "1",
        pattern=r"^\d{1,9}(,\d{1,9})*$",
        description="comma-separated: a function answers 422 to a ZTF alert of another programme, "
        "history rows of another are not stored, and nothing of another is given; 1 is public, 2 "
        "the partnership's, 3 Caltech's",
    )

    # -- a function's HTTP endpoint, and how it batches alerts
    host: str = "127.0.0.1"
    port: int = 8080
    socket: int | None = Field(
        None, description="file descriptor of a listening socket, in place of a port"
    )
    event_key: SecretStr = Field(
        SecretStr(""),
        description="key that a function requires of the senders of events, and that senders send; "
        "without it a function accepts every sender",
    )
    second_event_key: SecretStr = Field(
        SecretStr(""), description="key that is accepted as well, while keys are exchanged"
    )
    sender_issuer: str = Field(
        "",
        description="URL of an OpenID Connect provider whose tokens prove the senders of events to "
        "a function; of Kubernetes: https://kubernetes.default.svc",
    )
    sender_audience: str = Field("", description="audience that those tokens must be for")
    sender_subjects: str = Field(
        "",
        description="whose tokens those must be, separated by commas: "
        "system:serviceaccount:NAMESPACE:NAME; * at the end for all that begin so",
    )
    sender_tokens_only: bool = Field(
        False,
        description="whether a function accepts no key from a sender; the relay still accepts the "
        "S3 endpoint's, in the path",
    )
    sender_issuer_ca: Path | None = Field(
        None, description="file with the certificate authority of that provider"
    )
    sender_issuer_token: Path | None = Field(
        None, description="file with a token that a provider may ask for before it tells its keys"
    )
    sender_token: Path | None = Field(
        None,
        description="file with the token that senders send to functions, read again since it is "
        "renewed",
    )
    from_kafka: bool = Field(
        False,
        description="whether `cutouts` and `lightcurves` take the alerts of STAMPEDE_TOPICS from "
        "Kafka themselves, as a source does, besides those that are sent to them",
    )
    metrics_port: int = Field(
        0, description="port of a function's `/metrics`; 0: the same as of its requests"
    )
    batch_alerts: int = Field(1000, description="most alerts in one batch")
    batch_bytes: int = Field(
        64 * MIB,
        ge=1,
        description="most bytes of alerts in one batch, and in one pack before they are compressed",
    )
    linger_ms: int = Field(50, description="how long a batch waits after its last alert, at least")
    most_linger_ms: int = Field(
        1000, description="how long an alert waits at most for others that keep coming"
    )
    queue_bytes: int = Field(
        256 * MIB, description="bytes of requests held before a function answers 429"
    )
    client_seconds: float = Field(
        60.0,
        gt=0,
        description="a client is dropped if its header takes longer, or if it sends nothing of its "
        "body or takes nothing of its answer for so long",
    )
    workers: int = Field(1, description="worker processes: batches stored at once")
    decode_seconds: float = Field(
        1.0,
        description="seconds of CPU that decoding a batch, or one alert alone, may take; more "
        "for a large one",
    )
    flush_seconds: float = Field(
        120.0, description="seconds that storing a batch may take, decoding included"
    )
    worker_memory: int = Field(2048 * MIB, description="bytes that a worker may allocate")
    spool: Path = Field(
        Path("/dev/shm"), description="memory-backed directory that hands batches to the workers"
    )

    # -- traces
    traces: str = Field(
        "",
        pattern=r"^(https?://.+)?$",
        description="URL of an OpenTelemetry collector that takes traces by OTLP over HTTP: "
        "http://HOST:4318; without it nothing is recorded",
    )
    trace_share: float = Field(
        0.01,
        ge=0,
        le=1,
        description="share of the alerts that a source begins a trace for; an alert whose Kafka "
        "record has a header `traceparent` is recorded as that says",
    )

    # -- the source
    sink: str = Field("", validation_alias=AliasChoices("K_SINK", "STAMPEDE_SINK"))
    dead_letter_sink: str = Field(
        "", description="URL for refused events; without it they are retried for ever"
    )
    ce_overrides: str = Field(
        "",
        validation_alias=AliasChoices("K_CE_OVERRIDES", "STAMPEDE_CE_OVERRIDES"),
        description='JSON, `{"extensions": {NAME: VALUE}}` set on every event',
    )
    kafka: str = Field("127.0.0.1:9092", description="bootstrap servers")
    topics: str = Field(
        "",
        description="comma-separated topics; `read` asks Kafka about these, to tell in its ledger "
        "what is in flight from what is missing",
    )
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
    namespace: str = Field("default", description="namespace in the events' source attribute")
    source_name: str = Field("stampede", description="name in the events' source attribute")
    kafka_options: dict[str, str] = Field(
        default_factory=dict,
        description="any librdkafka setting as JSON: TLS, SASL, fetch sizes",
    )
    kafka_keys: str = Field(
        "",
        description="directory with the files `user`, `password` and `type` (the SASL mechanism), "
        "unless STAMPEDE_KAFKA_OPTIONS has sasl.username; a source reads them again",
    )
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

    # -- notifications of the store, and their events
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

    # -- compaction
    fanout: int = Field(8, description="runs of one level merged into one of the next")
    run_rows: int = Field(
        4_000_000, description="a merged run with more rows is split by key range"
    )
    grace_seconds: float = Field(
        300.0, description="how long the inputs of a merge stay, for requests that read them"
    )
    cutout_days: int | None = Field(
        None, ge=0, description="days after their night that cutouts are kept; unset: for ever"
    )
    packet_days: int | None = Field(
        None,
        ge=0,
        description="days after their night that packets (alerts as they came) are kept; 0: none "
        "are stored; unset: for ever",
    )
    retention_nights: int = Field(
        3, ge=1, description="most nights whose packs one pass of `reconcile` deletes, of each kind"
    )

    # -- commands that use a running system: `audit`, `ingest`, `simulate`, `deadletters`
    functions: dict[str, str] = Field(
        default_factory=dict,
        description='URLs of the functions, as JSON, if no `stampede up` runs: {"cutouts": URL, '
        '"lightcurves": URL, "deadletters": URL}',
    )

    # -- copies to the second site, and `reconcile`
    replica_region: str = "us-east-1"
    replica_ca_file: Path | None = Field(
        None, description="certificate authority of the second site's S3 endpoint"
    )
    copies: int = Field(
        # A copy mostly waits for the distant site: `stampede bench replicate`.
        32,
        ge=1,
        description="copies in progress at once",
    )
    copy_bytes: int = Field(128 * MIB, description="most bytes that all these copies hold")
    reconcile: str = Field(
        "retention,restore,packs,thumbnails,positions,replica,leftovers,checkpoints",
        description="steps of reconcile, comma-separated; they run in this order",
    )
    reconcile_days: float = Field(
        2.0,
        description="each pass looks at the nights of this many last days, and checks the packs "
        "stored in them",
    )
    reconcile_keys: int = Field(
        300_000,
        ge=1,
        description="a pass looks at so many of the earlier nights, in turn, as have this many "
        "keys at all sites; at least at one folder of a night",
    )

    reconcile_seconds: float = Field(
        300.0,
        gt=0,
        description="how long a pass of the function lists and copies; the next one goes on. "
        "`stampede reconcile` has no limit",
    )

    # -- `scrub`, which reads the whole store again and again
    scrub_seconds: float = Field(120.0, gt=0, description="how long one pass of `scrub` reads")
    scrub_days: float = Field(
        30.0, ge=0, description="days from the beginning of one whole round of `scrub` to the next"
    )

    orphan_days: float = Field(
        7.0,
        ge=0,
        description="days after which `scrub` deletes a pack whose rows readers get from other "
        "packs; 0: never",
    )

    # -- `publish`, which keeps a catalogue for others
    catalogue: str = Field(
        "",
        description="where `publish` keeps the HATS catalogue: a bucket of its own, "
        "http(s)://HOST:PORT/BUCKET with the store's keys, or file:///FOLDER",
    )

    # -- reading
    cache_bytes: int = Field(
        256 * MIB, description="bytes of the index and of tails of cutouts that `read` caches"
    )
    refresh_seconds: float = Field(2.0, description="age at which a listing of runs is renewed")
    stale_seconds: float = Field(
        300.0,
        description="while the store cannot be listed, `read` answers from a listing up to this "
        "age, and tells it; then it answers 503",
    )
    bulk_ids: int = Field(1_000_000, description="most ids in one large query")
    bulk_url: str = Field("", description="URL suggested to clients whose query exceeds `bulk_ids`")
    bulk_queries: int = Field(16, description="large queries at once; `read` answers 429 to more")
    bulk_bytes: int = Field(
        256 * MIB, description="bytes of ids that large queries hold before `read` answers 429"
    )
    cors_origins: str = Field(
        "*",
        description="origins whose pages may read, separated by commas, for example "
        "https://portal.example; * for all, empty for none",
    )
    tokens: Path | None = Field(
        None,
        description="file with the digests of bearer tokens (`stampede token new`), read again "
        "when it changes; unset: `read` is open",
    )
    open_scopes: str = Field(
        "",
        description="scopes that need no token though others do, separated by commas: pages, "
        "cutouts, lightcurves, bulk, ledger",
    )
    oidc_issuer: str = Field(
        "", description="URL of an OpenID Connect provider whose tokens open `read` too"
    )
    oidc_audience: str = Field("", description="audience that those tokens must be for")
    oidc_prefix: str = Field(
        "stampede:", description="what the scopes in those tokens begin with: stampede:bulk"
    )
    oidc_scopes: str = Field(
        "", description="scopes that each of those tokens has, separated by commas; * for all"
    )
    limit_clients: bool = Field(
        False,
        description="whether `read` answers 429 to a client that asks too often, or that has half "
        "of the large queries",
    )
    client_rates: dict[str, float] = Field(
        default_factory=dict,
        description="requests a second of one client by scope, as JSON, in place of the defaults: "
        '{"cutouts": 200, "lightcurves": 200, "pages": 50, "bulk": 1, "ledger": 5}',
    )
    trusted_proxies: str = Field(
        "",
        description="addresses or networks of proxies whose X-Forwarded-For names the client, "
        "and X-Forwarded-Proto its scheme, separated by commas",
    )


GROUPS = {
    "store": "the store",
    "replica": "the second site",
    "schema_registry": "alerts",
    "host": "a function's HTTP endpoint, and how it batches alerts",
    "traces": "traces",
    "sink": "the source",
    "notifications": "notifications of the store, and their events",
    "fanout": "compaction",
    "functions": "commands that use a running system: `audit`, `ingest`, `simulate`, `deadletters`",
    "replica_region": "copies to the second site, and `reconcile`",
    "scrub_seconds": "`scrub`, which reads the whole store again and again",
    "catalogue": "`publish`, which keeps a catalogue for others",
    "cache_bytes": "reading",
}
"""The groups of the settings in their order, by the name of the first setting of each."""
