"""What `read` and the commands answer, and to whom."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings

MIB = 1 << 20


class CommandSettings(BaseSettings):
    """Settings: `audit`, `ingest`, `simulate`, `deadletters` and the system that they use."""

    functions: dict[str, str] = Field(
        default_factory=dict,
        description='URLs of the functions, as JSON, if no `stampede up` runs: {"cutouts": URL, '
        '"lightcurves": URL, "deadletters": URL}, or {"alerts": URL, "deadletters": URL}',
    )


class CatalogueSettings(BaseSettings):
    """Settings: `publish`, which keeps a catalogue for others."""

    catalogue: str = Field(
        "",
        description="where `publish` keeps the HATS catalogue: a bucket of its own, "
        "http(s)://HOST:PORT/BUCKET with the store's keys, or file:///FOLDER",
    )


class ReadSettings(BaseSettings):
    """Settings: reading."""

    cache_bytes: int = Field(
        256 * MIB,
        description="bytes that `read` caches: of the index, of tails of cutouts, of light curves "
        "as they were sent",
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


class TapSettings(BaseSettings):
    """Settings: queries in ADQL (TAP)."""

    tap_queries: int = Field(
        2, ge=0, description="queries in ADQL that run at once, each in a process; 0: no TAP here"
    )
    tap_seconds: float = Field(
        60.0, gt=0, description="seconds that a query in ADQL may take, by the clock"
    )
    tap_job_seconds: float = Field(
        600.0, gt=0, description="seconds that a job of a query in ADQL may take, by the clock"
    )
    tap_job_days: float = Field(
        1.0, gt=0, description="days that a job of a query in ADQL is kept, with its result"
    )
    tap_memory: int = Field(
        512 * MIB,
        ge=64 * MIB,
        description="bytes that the process of a query in ADQL may take for it",
    )
    tap_rows: int = Field(
        200_000, ge=1, description="most rows that a query in ADQL gives; MAXREC may be less"
    )
    tap_scanned_rows: int = Field(
        2_000_000, ge=1, description="most rows of tables that a query in ADQL reads"
    )


class AccessSettings(BaseSettings):
    """Settings: who may read, and how much."""

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
