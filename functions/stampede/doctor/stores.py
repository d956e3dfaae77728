"""The stores: do they answer, may the keys do what is needed, and is the time right?"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from uuid import uuid4

from stampede.doctor.finding import Finding, Installation, error, warning
from stampede.errors import NoBucket, NotFound, StampedeError, StoreDown
from stampede.store.ceph.quotas import usage
from stampede.store.objects.address import StoreAddress
from stampede.store.objects.object_store import Objects
from stampede.store.open import first_site, open_objects, open_replica
from stampede.store.open import second_site as second_address
from stampede.store.s3.bucket import S3Objects

CLOCK_SECONDS = 5.0
"""More than this makes retention and grace times doubtful."""
NEARLY_FULL = 0.85
"""Part of a quota; the alert rule has the same."""
REFUSED_SECONDS = 900.0
"""S3 refuses requests whose time differs by more."""

REPAIR_KEYS = (
    "set it, and the secret key; on a cluster the Secret of {0}.existingSecret must be in the "
    "release's namespace, with access-key and secret-key"
)


def store(installation: Installation) -> Iterator[Finding]:
    """The store answers, lets the keys list, write, read and delete, and its clock is right."""
    if without_keys(first_site(installation.settings)):
        yield error("STAMPEDE_ACCESS_KEY is not set", REPAIR_KEYS.format("store"))
        return
    yield from _site(open_objects(installation.settings), "the store", installation.installed)
    yield from _quotas(first_site(installation.settings), "the store")


def second_site(installation: Installation) -> Iterator[Finding]:
    """The second site answers, lets the keys do the same, and its clock is right."""
    if without_keys(second_address(installation.settings)):
        yield error("STAMPEDE_REPLICA_ACCESS_KEY is not set", REPAIR_KEYS.format("replica"))
        return
    yield from _site(open_replica(installation.settings), "the second site", installation.installed)
    yield from _quotas(second_address(installation.settings), "the second site")


def without_keys(site: StoreAddress) -> bool:
    """Whether a store needs keys and there are none."""
    return site.url.startswith(("http://", "https://")) and not site.access_key


def _site(objects: Objects, name: str, installed: bool) -> Iterator[Finding]:
    key, data = f"check-{uuid4().hex}/doctor", b"written by stampede doctor"

    def read() -> None:
        if objects.get(key, 8, 2) != b"by":
            raise NotFound("a range of what was written")

    steps: dict[str, Callable[[], object]] = {
        "list": lambda: next(iter(objects.list("")), None),
        "write": lambda: objects.put(key, data),
        "read": read,
        "delete": lambda: objects.delete(key),
    }
    for step, attempt in steps.items():
        try:
            attempt()
        except StampedeError as failure:
            if isinstance(failure, NoBucket) and not installed:
                return  # the installation makes it
            repair = "`stampede check-store` says more" if step != "list" else ""
            yield error(f"{name} does not let us {step}: {failure.message}", repair)
            if step == "read":
                with suppress(StampedeError):
                    objects.delete(key)
            return
    ahead = (objects.now() - datetime.now(UTC)).total_seconds()
    if abs(ahead) > CLOCK_SECONDS:
        way = "ahead of" if ahead > 0 else "behind"
        yield (error if abs(ahead) > REFUSED_SECONDS else warning)(
            f"the clock of {name} is {abs(ahead):.0f} s {way} this machine's",
            "set the wrong one, with chrony for example: runbooks/StampedeClockWrong.md",
        )
    if isinstance(objects, S3Objects):
        yield from bucket_findings(objects, name)
        with suppress(StampedeError):  # the findings name what forbids it
            objects.forget_versions(key)


def bucket_findings(bucket: S3Objects, name: str) -> Iterator[Finding]:
    """Settings of the bucket that keep what Stampede deletes, or delete what it keeps."""
    try:
        settings = bucket.settings()
    except StoreDown as failure:
        yield warning(
            f"{name} does not tell whether the bucket keeps versions, locks objects or expires "
            f"them: {failure.message}",
            "let the keys read these settings, or look at them yourself",
        )
        return
    if settings.versioning:
        yield warning(
            f"{name} keeps old versions (versioning is {settings.versioning.lower()}): compaction "
            "and retention free no space",
            "use a bucket without versioning, or add a lifecycle rule that expires noncurrent "
            "versions and delete markers",
        )
    if settings.lock:
        time = f" for {settings.locked_for}" if settings.locked_for else ""
        yield warning(
            f"{name} has a bucket with object lock, and what is locked{time} cannot be deleted",
            "use a bucket without object lock",
        )
    for rule in settings.rules:
        which = f"below {rule.prefix!r}" if rule.prefix else "of the bucket"
        if rule.action == "Expiration":
            yield error(
                f"the lifecycle rule {rule.name!r} of {name} deletes objects {which} {rule.when}, "
                "and the ledger counts them as stored",
                "remove the rule; STAMPEDE_CUTOUT_DAYS and STAMPEDE_PACKET_DAYS say what to keep: "
                "docs/how-to/keep-less.md",
            )
        else:
            yield warning(
                f"the lifecycle rule {rule.name!r} of {name} moves objects {which} {rule.when} to "
                "another storage class, where a GET may take hours",
                "remove the rule, unless that class answers at once",
            )


def _quotas(site: StoreAddress, name: str) -> Iterator[Finding]:
    """Quotas that are nearly used up."""
    try:
        quotas = usage(site).quotas
    except StoreDown:
        return  # `_site` says so
    for quota in quotas:
        if quota.ratio >= NEARLY_FULL:
            whose = "the bucket" if quota.scope == "bucket" else "all that its owner may keep"
            unit = "bytes" if quota.unit == "size" else "objects"
            yield warning(
                f"{name} is {quota.ratio:.0%} full ({whose}): {quota.used:,} of {quota.limit:,} "
                f"{unit}",
                "raise the quota, add disks, or keep less with STAMPEDE_CUTOUT_DAYS: "
                "runbooks/StampedeBucketNearQuota.md",
            )
