"""What functions accept and how they work."""

from pathlib import Path

from pydantic import Field, SecretStr
from pydantic_settings import BaseSettings

MIB = 1 << 20


class AlertSettings(BaseSettings):
    """Settings: alerts."""

    schema_registry: str | None = Field(
        None, description="URL of a Confluent schema registry, for schema ids that are not built in"
    )
    schema_registry_user: str = Field(
        "", description="user with which to log in there, unless the URL has one"
    )
    schema_registry_password: SecretStr = SecretStr("")
    schema_registry_token: SecretStr = Field(
        SecretStr(""), description="bearer token for it, in place of user and password"
    )
    schema_registry_keys: str = Field(
        "",
        description="directory with the files `user` and `password`, or `token`, in place of "
        "these; read again for each request",
    )
    schema_registry_ca: Path | None = Field(
        None, description="certificate authority of the schema registry"
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


class EndpointSettings(BaseSettings):
    """Settings: a function's HTTP endpoint."""

    host: str = "127.0.0.1"
    port: int = 8080
    socket: int | None = Field(
        None, description="file descriptor of a listening socket, in place of a port"
    )
    metrics_port: int = Field(
        0, description="port of a function's `/metrics`; 0: the same as of its requests"
    )
    client_seconds: float = Field(
        60.0,
        gt=0,
        description="a client is dropped if its header takes longer, or if it sends nothing of its "
        "body or takes nothing of its answer for so long",
    )


class SenderSettings(BaseSettings):
    """Settings: who may send events to a function."""

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


class BatchSettings(BaseSettings):
    """Settings: how a function batches and stores alerts."""

    from_kafka: bool = Field(
        False,
        description="whether `alerts`, `cutouts` or `lightcurves` takes the alerts of "
        "STAMPEDE_TOPICS from Kafka itself, as a source does, besides those that are sent to it",
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


class TraceSettings(BaseSettings):
    """Settings: traces."""

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
