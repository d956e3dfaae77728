"""A bucket that keeps versions, locks objects or expires them: told, and left clean."""

import uuid
from collections.abc import Callable

import pytest
from minio import Minio
from minio.commonconfig import ENABLED, Filter
from minio.lifecycleconfig import (
    AbortIncompleteMultipartUpload,
    Expiration,
    LifecycleConfig,
    NoncurrentVersionExpiration,
    Rule,
)
from minio.objectlockconfig import DAYS, GOVERNANCE, ObjectLockConfig
from minio.versioningconfig import VersioningConfig
from typer.testing import CliRunner

from stampede.cli.main import app
from stampede.config.settings import Settings
from stampede.doctor.finding import Installation
from stampede.doctor.stores import store
from stampede.store.conformance import racing
from tests.support.store.ceph import minio_of

pytestmark = pytest.mark.integration
RACING = (racing.__doc__ or "").rstrip(".")
Prepare = Callable[[Minio, str], None]


def versioned(client: Minio, name: str) -> None:
    client.make_bucket(name)
    client.set_bucket_versioning(name, VersioningConfig(ENABLED))


def locked(client: Minio, name: str) -> None:
    client.make_bucket(name, object_lock=True)


def locked_for_days(client: Minio, name: str) -> None:
    locked(client, name)
    client.set_object_lock_config(name, ObjectLockConfig(GOVERNANCE, 15, DAYS))


def expiring(client: Minio, name: str) -> None:
    client.make_bucket(name)
    rule = Rule(ENABLED, Filter(prefix="packs/"), "thirty", expiration=Expiration(days=30))
    client.set_bucket_lifecycle(name, LifecycleConfig([rule]))


def tidy(client: Minio, name: str) -> None:
    """Rules that delete nothing that Stampede keeps."""
    client.make_bucket(name)
    rules = [
        Rule(
            ENABLED,
            Filter(prefix=""),
            "uploads",
            abort_incomplete_multipart_upload=AbortIncompleteMultipartUpload(1),
        ),
        Rule(
            ENABLED,
            Filter(prefix="t"),
            "old",
            noncurrent_version_expiration=NoncurrentVersionExpiration(1),
        ),
        Rule("Disabled", Filter(prefix="p"), "never", expiration=Expiration(days=1)),
    ]
    client.set_bucket_lifecycle(name, LifecycleConfig(rules))


def made(ceph, prepare: Prepare) -> Settings:
    name = f"test-{uuid.uuid4().hex[:12]}"
    prepare(minio_of(ceph), name)
    return Settings(
        store=f"{ceph.endpoint}/{name}",
        access_key=ceph.keys.access_key,
        secret_key=ceph.keys.secret_key,
    )


def left(ceph, settings: Settings) -> int:
    """How many versions and delete markers there are."""
    name = settings.store.rpartition("/")[2]
    return len([*minio_of(ceph).list_objects(name, recursive=True, include_version=True)])


@pytest.mark.parametrize(
    ("prepare", "told", "status"),
    [
        (versioned, ["WARNING: the store keeps old versions (versioning is enabled)"], 0),
        (locked, ["WARNING: the store keeps old versions", "object lock, and what is locked"], 0),
        (expiring, ["ERROR: the lifecycle rule 'thirty'", "below 'packs/' after 30 days"], 1),
        (tidy, [], 0),
    ],
)
def test_check_store_tells_and_leaves_nothing(
    ceph, prepare: Prepare, told: list[str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = made(ceph, prepare)
    monkeypatch.setenv("STAMPEDE_STORE", settings.store)
    monkeypatch.setenv("STAMPEDE_ACCESS_KEY", settings.access_key)
    monkeypatch.setenv("STAMPEDE_SECRET_KEY", settings.secret_key.get_secret_value())
    result = CliRunner().invoke(app, ["check-store"])
    # Ceph 16.2 at times does not find a key of a bucket with versions while it is overwritten.
    missed = prepare in (versioned, locked) and f"{RACING}: the store has no" in result.output
    assert result.exit_code == (1 if missed else status), result.output
    for text in told:
        assert text in result.output
    assert ("to mend it" in result.output) == bool(told)
    assert left(ceph, settings) == 0


@pytest.mark.parametrize(
    ("prepare", "told"),
    [
        (versioned, ["keeps old versions"]),
        (locked_for_days, ["keeps old versions", "what is locked for 15 days"]),
        (expiring, ["the lifecycle rule 'thirty' of the store deletes objects below 'packs/'"]),
        (tidy, []),
    ],
)
def test_doctor_tells_and_leaves_nothing_that_it_may_delete(
    ceph, prepare: Prepare, told: list[str]
) -> None:
    settings = made(ceph, prepare)
    faults = [finding.fault for finding in store(Installation(settings, {}))]
    assert len(faults) == len(told)
    for fault, text in zip(faults, told, strict=True):
        assert text in fault
    # What is locked stays: the object and the mark that deleted it.
    assert left(ceph, settings) == (2 if prepare is locked_for_days else 0)
