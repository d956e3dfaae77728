"""What keeps the store small, whole and copied."""

from pydantic import Field
from pydantic_settings import BaseSettings

MIB = 1 << 20


class CompactionSettings(BaseSettings):
    """Settings: compaction and retention."""

    fanout: int = Field(8, description="runs of one level merged into one of the next")
    run_rows: int = Field(
        4_000_000, description="a merged run with more rows is split by key range"
    )
    grace_seconds: float = Field(
        300.0, description="how long the inputs of a merge stay, for requests that read them"
    )
    merge_days: float = Field(
        2.0,
        ge=0,
        description="days after a night, and after they were stored, that its packs and raw "
        "alerts are merged: packets by object, all others into objects of 64 MB",
    )
    merge_seconds: float = Field(
        20.0,
        ge=0,
        description="how long one pass of `compact` merges objects of each kind; 0: never",
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


class ReconcileSettings(BaseSettings):
    """Settings: copies to the second site, and `reconcile`."""

    copies: int = Field(
        # A copy mostly waits for the distant site: `stampede bench replicate`.
        32,
        ge=1,
        description="copies in progress at once",
    )
    copy_bytes: int = Field(128 * MIB, description="most bytes that all these copies hold")
    reconcile: str = Field(
        "notifications,store-check,proofs,retention,restore,packs,thumbnails,positions,moving,"
        "replica,leftovers,checkpoints,histories",
        description="steps of reconcile, comma-separated; they run in this order",
    )
    notification_patience_seconds: float = Field(
        900.0,
        ge=0,
        description="`reconcile` takes the notifications off the bucket if none has come for so "
        "long, and puts them back when one comes; 0: it leaves them and their topic alone. Ceph's "
        "queue of them holds 128 MB, and a full one stops the storing of alerts",
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
    store_check_seconds: float = Field(
        3600.0,
        ge=0,
        description="time from one check of each store to the next: `reconcile` writes, reads, "
        "lists and deletes objects, and keeps how long each step took; 0: never",
    )
    histories_nights: int = Field(
        3,
        ge=0,
        description="so many of the last nights, a day after their end, `reconcile` looks for "
        "detections of histories that never came as an alert; 0: none",
    )


class ProofSettings(BaseSettings):
    """Settings: proofs of nights."""

    proof_days: float | None = Field(
        2.0,
        ge=0,
        description="days after the end of a night that `reconcile` makes its proof; null: never",
    )
    proof_key: str = Field(
        "",
        description="file with the Ed25519 private key, PEM, that signs the proofs of nights: "
        "`stampede proofs key FILE` makes one; without it they are not signed",
    )


class ScrubSettings(BaseSettings):
    """Settings: `scrub`, which reads the whole store again and again."""

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
