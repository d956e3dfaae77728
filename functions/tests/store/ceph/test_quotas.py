"""Quotas of Ceph: how full a bucket is is told in time, and a full one loses no alert."""

import json
from collections.abc import Callable, Iterator

import pytest
import structlog
from prometheus_client import REGISTRY

from stampede.config.settings import Settings
from stampede.doctor.finding import Installation
from stampede.doctor.stores import store
from stampede.errors import StoreDown, StoreRefused
from stampede.handlers.reconcile.reconciler import Reconciler
from stampede.handlers.reconcile.store_check import check_stores
from stampede.store import store_checks
from stampede.store.ceph.quotas import Quota, Usage, usage
from stampede.store.open import first_site, open_objects
from stampede.store.step_times import WRITTEN
from stampede_local.ceph import USER, LocalCeph
from tests.support.alerts import made_alerts
from tests.support.store.faulty_s3 import answer, faulty_s3
from tests.support.store.watched_objects import Watched

LIMIT = 102_400
SetQuota = Callable[..., None]


@pytest.fixture
def set_quota(ceph: LocalCeph, bucket: Settings) -> Iterator[SetQuota]:
    """Sets a quota of the bucket or of its owner, with the command of the runbook."""
    whose = {
        "bucket": ("--quota-scope=bucket", f"--bucket={bucket.store.rpartition('/')[2]}"),
        "user": ("--quota-scope=user", f"--uid={USER}"),
    }

    def set_(scope: str = "bucket", **limits: int) -> None:
        options = (f"--max-{unit}={limit}" for unit, limit in limits.items())
        ceph.radosgw_admin("quota", "set", *whose[scope], *options)
        ceph.radosgw_admin("quota", "enable", *whose[scope])

    yield set_
    ceph.radosgw_admin("quota", "disable", *whose["user"])


def fill(bucket: Settings, size: int) -> None:
    open_objects(bucket).put("filling", b"x" * size)


def ratio(scope: str = "bucket", unit: str = "size") -> float | None:
    labels = {"site": "store", "scope": scope, "unit": unit}
    return REGISTRY.get_sample_value("stampede_quota_used_ratio", labels)


def test_the_store_tells_what_is_used_and_what_is_allowed(
    bucket: Settings, set_quota: SetQuota
) -> None:
    fill(bucket, 1000)
    assert usage(first_site(bucket)) == Usage(1000, [])
    set_quota(size=LIMIT, objects=4)
    set_quota("user", size=10**12)
    stored, quotas = usage(first_site(bucket))
    of_bucket, of_objects, of_owner = quotas
    assert stored == 1000
    assert of_bucket == Quota("bucket", "size", 1000, LIMIT)
    assert of_objects == Quota("bucket", "objects", 1, 4)
    assert of_owner._replace(used=0) == Quota("user", "size", 0, 10**12)
    assert of_owner.used >= 1000  # other tests' buckets count too


def test_a_store_that_is_no_ceph_tells_nothing() -> None:
    with faulty_s3(answer("200 OK")) as server:
        settings = Settings(store=f"http://{server.host}/bucket", access_key="key", secret_key="s")
        assert usage(first_site(settings)) == Usage(None, [])
    assert usage(first_site(Settings(store="memory://"))) == Usage(None, [])


def test_reconcile_exports_how_full_the_bucket_is(bucket: Settings, set_quota: SetQuota) -> None:
    fill(bucket, LIMIT // 2)
    set_quota(size=LIMIT)
    Reconciler(bucket).run()
    assert REGISTRY.get_sample_value("stampede_bucket_bytes", {"site": "store"}) >= LIMIT // 2
    assert ratio() == pytest.approx(0.5, abs=0.05)
    set_quota(size=-1)
    Reconciler(bucket).run()
    assert ratio() is None, "the quota was taken away"


@pytest.mark.parametrize("unit", ["size", "objects"])
def test_reconcile_checks_the_speed_of_a_bucket_only_while_it_has_room(
    bucket: Settings, set_quota: SetQuota, unit: str
) -> None:
    fill(bucket, 1000)
    # Enough for a check, but alerts would have less than nine times that.
    set_quota(**{unit: 9 * WRITTEN[unit]})
    objects = Watched(open_objects(bucket))
    with structlog.testing.capture_logs() as lines:
        check_stores([objects], bucket)
    [line] = lines
    assert (line["event"], line["unit"]) == ("store not checked", unit)
    assert objects.count("put") == 0
    Reconciler(bucket).run()
    assert store_checks.load(open_objects(bucket), "store").last is None
    set_quota(**{unit: 11 * WRITTEN[unit]})
    Reconciler(bucket).run()
    checked = store_checks.load(open_objects(bucket), "store").last
    assert checked is not None
    assert "write-pack" in checked.steps
    assert not list(open_objects(bucket).list("probes/"))


def test_the_doctor_names_a_bucket_that_is_nearly_full(
    bucket: Settings, set_quota: SetQuota
) -> None:
    fill(bucket, 95_000)
    set_quota(size=LIMIT)
    [finding] = store(Installation(bucket, {}))
    assert finding.level == "warning"
    assert finding.fault == ("the store is 93% full (the bucket): 95,000 of 102,400 bytes")
    assert "StampedeBucketNearQuota" in finding.repair
    set_quota(size=2 * LIMIT)
    assert [*store(Installation(bucket, {}))] == []


def test_a_full_bucket_refuses_alerts_until_its_quota_is_raised(
    serve, bucket: Settings, set_quota: SetQuota
) -> None:
    fill(bucket, LIMIT)
    set_quota(size=LIMIT)
    served = serve(
        "cutouts",
        STORE=bucket.store,
        ACCESS_KEY=bucket.access_key,
        SECRET_KEY=bucket.secret_key.get_secret_value(),
    )
    refused = served.post(0, made_alerts.ztf_alert(1))
    assert refused.status == 503
    detail = json.loads(refused.data)["detail"]
    assert "QuotaExceeded" in detail
    assert "radosgw-admin quota set" in detail
    with pytest.raises(StoreDown) as caught:
        fill(bucket, LIMIT + 1)
    assert not isinstance(caught.value, StoreRefused), "retention may make room: try again"
    no_write, full = store(Installation(bucket, {}))
    assert (no_write.level, "QuotaExceeded" in no_write.fault) == ("error", True)
    assert full.level == "warning"
    set_quota(size=100 * LIMIT)
    assert served.post(0, made_alerts.ztf_alert(1)).status == 204
